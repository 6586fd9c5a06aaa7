"""The tables of every key that recipes/README.md and cluster_profiles/README.md end with, made from the schema.

What a README says above `MARK` is written by hand and kept.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

__all__ = ["MARK", "fields", "renewed"]

MARK = "<!-- Below this line: written by `pytest tests/golden --update-golden` from the schema. -->\n"

_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "null": "null",
    "object": "mapping",
    "array": "list",
}


def renewed(text: str, model: type[BaseModel]) -> str:
    """A README with the part below the mark made anew; ValueError where the mark is missing."""
    head, found, _ = text.partition(MARK)
    if not found:
        raise ValueError(f"the line is missing: {MARK}")
    return head + MARK + fields(model)


def fields(model: type[BaseModel]) -> str:
    """Markdown: a table for the top level and for each section below it, in the order of the schema."""
    return _Reference(model).text()


class _Reference:
    """One schema on its way to Markdown. A section that can stand in several places is told at the first of them."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.schema = model.model_json_schema()
        self.sections: dict[str, Any] = self.schema.get("$defs", {})
        written = model.model_json_schema(mode="serialization").get("$defs", {})
        # A section that is written back as text is typed as text.
        self.as_text = {name for name, section in written.items() if section.get("type") == "string"}
        self.places: dict[str, str] = {}
        self.parts: list[str] = []

    def text(self) -> str:
        self._section(self.schema, "")
        return "\n".join(self.parts)

    def _section(self, section: dict[str, Any], place: str) -> None:
        required = section.get("required", ())
        title = f"### `{place}`" if place else "### Top level"
        rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
        inner: list[tuple[str, str]] = []
        for name, field in section.get("properties", {}).items():
            path = f"{place}.{name}" if place else name
            for child, suffix in self._children(field):
                if child not in self.places:
                    self.places[child] = path + suffix
                    inner.append((child, path + suffix))
            default = "**required**" if name in required else self._default(field)
            rows.append(f"| `{path}` | {_cell(self._kind(field))} | {default} | {_cell(self._meaning(field))} |")
        self.parts += [title, "", *([_plain(section["description"]), ""] if "description" in section else [])]
        self.parts += [*rows, ""]
        for child, where in inner:
            self._section(self.sections[child], where)

    def _meaning(self, field: dict[str, Any]) -> str:
        # pydantic leaves a field's docstring out where it says the same as that of its section.
        told = field.get("description") or (self.sections[_name(field)].get("description") if "$ref" in field else None)
        return str(told or "")

    def _children(self, field: dict[str, Any], suffix: str = "") -> list[tuple[str, str]]:
        """The sections that can stand in a field, with what their place adds to the field's path."""
        if "$ref" in field:
            name = _name(field)
            described = "properties" in self.sections[name] and name not in self.as_text
            return [(name, suffix)] if described else []
        found = [pair for one in _choices(field) for pair in self._children(one, suffix)]
        found += [pair for one in field.get("prefixItems", ()) for pair in self._children(one, f"{suffix}[]")]
        if isinstance(field.get("items"), dict):
            found += self._children(field["items"], f"{suffix}[]")
        if isinstance(field.get("additionalProperties"), dict):
            found += self._children(field["additionalProperties"], f"{suffix}.NAME")
        return found

    def _kind(self, field: dict[str, Any]) -> str:
        if "$ref" in field:
            name = _name(field)
            if name in self.as_text:
                return "text"
            if "properties" in self.sections[name]:
                return f"section, [{self.places[name]}](#{_anchor(self.places[name])})"
            return self._kind(self.sections[name])
        if _choices(field):
            return ", or ".join(dict.fromkeys(self._kind(one) for one in _choices(field)))
        if "enum" in field:
            return " or ".join(f"`{json.dumps(value)}`".replace('"', "") for value in field["enum"])
        if "const" in field:
            return f"`{json.dumps(field['const'])}`".replace('"', "")
        return ", ".join([self._base(field), *_limits(field)])

    def _base(self, field: dict[str, Any]) -> str:
        kind = field.get("type", "anything")
        if kind == "array":
            if field.get("prefixItems"):
                return "list of " + ", then ".join(self._kind(one) for one in field["prefixItems"])
            items = field.get("items") or {}
            return f"list of {self._kind(items)}" if items else "list"
        if kind == "object" and isinstance(field.get("additionalProperties"), dict):
            return f"mapping of NAME to {self._kind(field['additionalProperties'])}"
        if field.get("format") == "path":
            return "path"
        examples = ", ".join(f"`{example}`" for example in field.get("examples", ()))
        return _WORDS.get(kind, kind) + (f" ({examples})" if examples else "")

    def _default(self, field: dict[str, Any]) -> str:
        if "default" not in field:  # made by a factory
            return "`[]`" if field.get("type") == "array" else "`{}`"
        if isinstance(field["default"], dict) and self._children(field):
            return "as below"
        value = field["default"]
        if field.get("type") == "duration" and isinstance(value, int):
            value = f"{value}s"  # as it can be typed
        text = json.dumps(value, ensure_ascii=False)
        return "empty" if value == "" else f"`{_cell(text if not isinstance(value, str) else value)}`"


def _choices(field: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for key in ("anyOf", "oneOf", "allOf") for one in field.get(key, ())]


def _name(field: dict[str, Any]) -> str:
    return str(field["$ref"]).rpartition("/")[2]


def _limits(field: dict[str, Any]) -> list[str]:
    told = {
        "minimum": "from {}",
        "exclusiveMinimum": "above {}",
        "maximum": "to {}",
        "exclusiveMaximum": "below {}",
        "minItems": "at least {}",
        "maxItems": "at most {}",
        "pattern": "like `{}`",
    }
    if "prefixItems" in field:
        return []
    if field.get("minItems") is not None and field.get("minItems") == field.get("maxItems"):
        return [f"exactly {field['minItems']}"]
    found = [text.format(field[key]) for key, text in told.items() if key in field]
    least = field.get("minLength")
    if least:
        found.append("not empty" if least == 1 else f"at least {least} characters")
    return found


def _anchor(place: str) -> str:
    """The address that Markdown viewers give to a heading."""
    return "".join(character for character in place.lower() if character.isalnum() or character in "_-")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    return " ".join(text.split())
