"""A batch script as data: directives, commands and assignments, each with its line. Nothing of it is run.

tree-sitter's bash grammar does the reading: quotes, continuation lines, here-documents and pipelines are its business,
and what it cannot read it marks and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import tree_sitter
import tree_sitter_bash

from pretrainctl.linting.header import Header, read_header

__all__ = ["Assignment", "Command", "Place", "Script", "Statement", "Word", "read"]


_BROKEN = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]+$")
_TAKES_A_BLANK = re.compile(r"\b(tr|cut|paste|sort|column|xargs|awk|sed|echo|printf|read|IFS)\b")
"""Commands to which an escaped blank at the end of a line may be an argument."""


@dataclass(frozen=True)
class Word:
    """A word of a command, or the text of a here-document."""

    line: int
    text: str
    """As written."""
    value: str
    """Without its quotes; expansions stay as written (`$NAME`)."""
    expands: tuple[str, ...] = ()
    """Variables that this shell puts in, before any program sees the word."""


@dataclass(frozen=True)
class Place:
    """Where in the script something stands."""

    statement: int = 0
    """Index of the top-level statement."""
    function: str = ""
    background: bool = False
    piped: bool = False
    """Its exit status is not the last of its pipeline."""
    guarded: bool = False
    """Its exit status is looked at: a condition, `!`, `&&`, `||`."""
    excused: bool = False
    """Its failure is not that of its statement: a condition, `!`, `||`."""
    loop: bool = False
    conditional: bool = False
    """It does not run in every case: a branch, or behind `&&` or `||`."""
    substitution: bool = False
    """Inside `$(...)`."""


@dataclass(frozen=True)
class Assignment:
    """`NAME=value`, or `export NAME` with `value` None."""

    line: int
    name: str
    value: Word | None
    exported: bool
    place: Place
    adds: bool = False
    """`NAME+=value`."""


@dataclass(frozen=True)
class Command:
    """A simple command."""

    line: int
    words: tuple[Word, ...]
    prefix: tuple[Assignment, ...]
    """Assignments in front of it."""
    document: Word | None
    """Its here-document."""
    place: Place

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return self.words[0].value.rsplit("/", 1)[-1] if self.words else ""

    @property
    def values(self) -> tuple[str, ...]:
        """The words without their quotes."""
        return tuple(word.value for word in self.words)


@dataclass(frozen=True)
class Statement:
    """A top-level statement of the script."""

    line: int
    text: str


@dataclass(frozen=True)
class Script:
    """What a batch script says, in the order in which it says it."""

    shebang: str
    dos: bool
    """Whether lines end in CR LF."""
    header: Header
    statements: tuple[Statement, ...]
    commands: tuple[Command, ...]
    assignments: tuple[Assignment, ...]
    expands: frozenset[str]
    """Every variable that is put in somewhere."""
    functions: dict[str, str]
    """Text of each function."""
    broken: tuple[int, ...]
    """Lines that end in a backslash and a blank, where a line was meant to go on."""
    strays: tuple[Word, ...]
    """Words behind `export` and its like that are neither a name, nor an option, nor put in by the shell."""
    unread: tuple[int, ...]
    """Lines that the grammar could not read."""


def read(text: str) -> Script:
    """Read the text of a script, whatever it is; RecursionError where it nests hundreds deep."""
    dos = "\r\n" in text
    source = text.replace("\r\n", "\n")
    tree = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(source.encode())
    reader = _Reader()
    reader.block(tree.root_node, Place(), top=True)
    lines = source.removesuffix("\n").split("\n")  # as the grammar counts: not at form feeds
    return Script(
        shebang=lines[0] if lines and lines[0].startswith("#!") else "",
        dos=dos,
        header=read_header(lines, reader.comments),
        statements=tuple(reader.statements),
        commands=tuple(reader.commands),
        assignments=tuple(reader.assignments),
        expands=frozenset(_expansions(tree.root_node)),
        functions=reader.functions,
        broken=tuple(_broken(tree.root_node, lines)),
        strays=tuple(reader.strays),
        unread=tuple(
            min(_line(node), len(lines)) for node in _descendants(tree.root_node) if node.is_error or node.is_missing
        ),
    )


def _line(node: tree_sitter.Node) -> int:
    return node.start_point[0] + 1


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _broken(root: tree_sitter.Node, lines: Sequence[str]) -> Iterator[int]:
    for number, line in enumerate(lines):
        found = _BROKEN.search(line)
        if not found or _TAKES_A_BLANK.search(line):
            continue
        at = (number, len(line[: found.start()].encode()))
        node = root.descendant_for_point_range(at, at)
        kinds = [node.type] if node else []
        while node and node.parent:
            node = node.parent
            kinds.append(node.type)
        quoted = {"string", "raw_string"} & set(kinds) and "variable_assignment" not in kinds
        if not quoted and not {"comment", "heredoc_body"} & set(kinds):
            yield number + 1


def _expansions(node: tree_sitter.Node) -> Iterator[str]:
    if node.type in ("simple_expansion", "expansion"):
        yield from (_text(child) for child in _descendants(node) if child.type.endswith("variable_name"))
    elif node.type != "raw_string":
        for child in node.children:
            yield from _expansions(child)


def _descendants(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    for child in node.children:
        yield child
        yield from _descendants(child)


def _unquoted(node: tree_sitter.Node) -> str:
    text = _text(node)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type in ("string", "heredoc_body"):
        inner = text[1:-1] if node.type == "string" else text
        return re.sub(r"\\([$`\"\\])", r"\1", inner.replace("\\\n", ""))
    if node.type == "word":
        return re.sub(r"\\(.)", r"\1", text.replace("\\\n", ""))
    if node.type == "concatenation":
        return "".join(map(_unquoted, node.named_children))
    if node.type == "array":
        return " ".join(map(_unquoted, node.named_children))
    if node.type == "command_name" and node.children:
        return _unquoted(node.children[0])
    return text


def _word(node: tree_sitter.Node) -> Word:
    return Word(_line(node), _text(node), _unquoted(node), tuple(_expansions(node)))


def _document(statement: tree_sitter.Node, body: tree_sitter.Node) -> Word:
    start = next(_text(child) for child in _descendants(statement) if child.type == "heredoc_start")
    if re.search(r"[\"'\\]", start):  # a quoted end word: nothing is put in
        return Word(_line(body), _text(body), _text(body))
    return _word(body)


class _Reader:
    """Collects what stands in a tree."""

    def __init__(self) -> None:
        self.comments: list[int] = []
        self.statements: list[Statement] = []
        self.commands: list[Command] = []
        self.assignments: list[Assignment] = []
        self.functions: dict[str, str] = {}
        self.strays: list[Word] = []

    def block(self, node: tree_sitter.Node, place: Place, *, top: bool = False) -> None:
        """Visit the parts of a block; a `&` after one puts it into the background."""
        condition = {child.id for child in node.children_by_field_name("condition")}
        loop = node.type in ("while_statement", "for_statement", "c_style_for_statement")
        branch = node.type in ("if_statement", "case_statement")
        for index, child in enumerate(node.children):
            if not child.is_named:
                continue
            after = node.children[index + 1].type if index + 1 < len(node.children) else ""
            here = replace(
                place,
                background=place.background or after == "&",
                guarded=place.guarded or child.id in condition,
                excused=place.excused or child.id in condition,
                loop=place.loop or loop,
                conditional=place.conditional or (branch and child.id not in condition),
            )
            if top and child.type != "comment":
                here = replace(here, statement=len(self.statements))
                self.statements.append(Statement(_line(child), _text(child)))
            self.visit(child, here)

    def visit(self, node: tree_sitter.Node, place: Place) -> None:
        """Collect a node and what stands in it."""
        collect: Callable[[tree_sitter.Node, Place], None] | None = {
            "comment": self._comment,
            "command": self._simple,
            "declaration_command": self._declaration,
            "variable_assignment": self._lone_assignment,
            "function_definition": self._function,
            "pipeline": self._pipeline,
            "list": self._list,
            "negated_command": self._negated,
            "redirected_statement": self._redirected,
            "command_substitution": self._substitution,
            "process_substitution": self._substitution,
        }.get(node.type)
        (collect or self.block)(node, place)

    def _comment(self, node: tree_sitter.Node, _: Place) -> None:
        self.comments.append(_line(node))

    def _function(self, node: tree_sitter.Node, place: Place) -> None:
        name = _text(node.children_by_field_name("name")[0])
        self.functions[name] = _text(node)
        self.block(node, replace(place, function=name, background=False, piped=False))

    def _pipeline(self, node: tree_sitter.Node, place: Place) -> None:
        *first, last = node.named_children
        for part in first:
            self.visit(part, replace(place, piped=True))
        self.visit(last, place)

    def _list(self, node: tree_sitter.Node, place: Place) -> None:
        left, *rest = node.named_children
        excused = place.excused or any(child.type == "||" for child in node.children)
        self.visit(left, replace(place, guarded=True, excused=excused))
        for part in rest:
            self.visit(part, replace(place, conditional=True))

    def _negated(self, node: tree_sitter.Node, place: Place) -> None:
        self.block(node, replace(place, guarded=True, excused=True))

    def _substitution(self, node: tree_sitter.Node, place: Place) -> None:
        self.block(node, replace(place, substitution=True))

    def _redirected(self, node: tree_sitter.Node, place: Place) -> None:
        body = next((child for child in _descendants(node) if child.type == "heredoc_body"), None)
        for child in node.named_children:
            if child.type == "command" and body is not None:
                self._command(child, place, _document(node, body))
            else:
                self.visit(child, place)

    def _simple(self, node: tree_sitter.Node, place: Place) -> None:
        self._command(node, place, None)

    def _command(self, node: tree_sitter.Node, place: Place, document: Word | None) -> None:
        words = []
        prefix = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                prefix.append(self._assignment(child, place, exported=True))
                continue
            if child.type == "herestring_redirect":
                document = _word(child.named_children[-1])
            elif not child.type.endswith("_redirect"):
                words.append(_word(child))
            self._inside(child, place)
        self.commands.append(Command(_line(node), tuple(words), tuple(prefix), document, place))

    def _declaration(self, node: tree_sitter.Node, place: Place) -> None:
        keyword = _text(node.children[0])
        flags = [_text(child) for child in node.named_children if child.type == "word"]
        exported = keyword == "export" or any(re.fullmatch(r"-\w*x\w*", flag) for flag in flags)
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assignments.append(self._assignment(child, place, exported=exported))
            elif child.type == "variable_name" and exported:
                self.assignments.append(Assignment(_line(child), _text(child), None, exported, place))
            elif child.type in ("word", "number") and not re.match(r"[-+]|\w+\[", _text(child)):
                self.strays.append(_word(child))

    def _lone_assignment(self, node: tree_sitter.Node, place: Place) -> None:
        self.assignments.append(self._assignment(node, place, exported=False))

    def _assignment(self, node: tree_sitter.Node, place: Place, *, exported: bool) -> Assignment:
        name = _text(node.children_by_field_name("name")[0])
        values = node.children_by_field_name("value")
        self._inside(node, place)
        word = _word(values[0]) if values else Word(_line(node), "", "")
        adds = any(child.type == "+=" for child in node.children)
        return Assignment(_line(node), name, word, exported, place, adds)

    def _inside(self, node: tree_sitter.Node, place: Place) -> None:
        """Commands in the substitutions of a word."""
        for child in node.children:
            if child.type in ("command_substitution", "process_substitution"):
                self.visit(child, place)
            else:
                self._inside(child, place)
