"""Says: parse what was typed, call one workflow, show what it returned."""
