"""Reading a script: what is a directive, a command, a variable that the batch shell puts in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrainctl.linting import check
from pretrainctl.linting.batch import Batch
from pretrainctl.linting.options import read_options
from pretrainctl.linting.script import read


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("-N 2 -n8 --time=10 prog -c 3", {"nodes": "2", "ntasks": "8", "time": "10"}, "prog -c 3"),
        ("--nodes 2 --label prog", {"nodes": "2", "label": ""}, "prog"),
        ("-lK1 prog", {"label": "", "kill-on-bad-exit": "1"}, "prog"),
        ("-K prog", {"kill-on-bad-exit": ""}, "prog"),
        ("-lc 4 prog", {"label": "", "cpus-per-task": "4"}, "prog"),
        ("--no-kill prog", {"no-kill": ""}, "prog"),
        ("--mpi=none -- -prog", {"mpi": "none"}, "-prog"),
        ("-W 60 prog", {"wait": "60"}, "prog"),
        ("--exclusive --exclusive=user prog", {"exclusive": "user"}, "prog"),
        ("prog", {}, "prog"),
        ("", {}, ""),
        ("-n", {"ntasks": ""}, ""),
    ],
)
def test_options_are_read_as_getopt_does(words, options, rest):
    found, first = read_options(words.split())
    assert found == options
    assert words.split()[first:] == rest.split()


def test_wait_takes_no_value_with_sbatch():
    assert read_options(["-W", "--wait", "x"], command="sbatch") == ({"wait": ""}, 2)


def test_a_directive_may_hold_several_options_quotes_and_a_comment():
    script = read('#!/bin/bash\n#SBATCH -N 2 --job-name="a b" # --time=3\n#SBATCH --gres gpu:4\n  #SBATCH --no\ndate\n')
    assert [(each.line, each.name, each.value) for each in script.header.directives] == [
        (2, "nodes", "2"),
        (2, "job-name", "a b"),
        (3, "gres", "gpu:4"),
    ]


def test_a_continued_command_has_the_line_of_its_first_word():
    script = read("#!/bin/bash\nA=1 srun \\\n  -n 2 \\\n  'a b' \"c $D\" e\\ f\n")
    (command,) = script.commands
    assert command.line == 2
    assert command.values == ("srun", "-n", "2", "a b", "c $D", "e f")
    assert [each.name for each in command.prefix] == ["A"]
    assert command.words[4].expands == ("D",)


@pytest.mark.parametrize(
    ("text", "expands"),
    [
        ("'$A'", ()),
        ('"$A"', ("A",)),
        ('"\\$A"', ()),
        ('"${A:-$B}"', ("A", "B")),
        ('"$(f $A)"', ("A",)),
        ("$((A + 1))", ()),
        ("x'$A'\"$B\"", ("B",)),
    ],
)
def test_what_the_batch_shell_puts_in(text, expands):
    (command,) = (each for each in read(f"echo {text}\n").commands if each.name == "echo")
    assert command.words[1].expands == expands


def test_where_a_command_stands():
    script = read("a | b\nc &\nif d; then e; fi\nf() { g; }\nX=$(h)\nwhile i; do j; done\nk || l\n! m\n{ n; } | o\n")
    where = {command.name: command.place for command in script.commands}
    assert {name for name, place in where.items() if place.piped} == {"a", "n"}
    assert {name for name, place in where.items() if place.background} == {"c"}
    assert {name for name, place in where.items() if place.guarded} == {"d", "i", "k", "m"}
    assert {name for name, place in where.items() if place.function} == {"g"}
    assert {name for name, place in where.items() if place.substitution} == {"h"}
    assert {name for name, place in where.items() if place.loop} == {"i", "j"}


def test_variables_and_wrappers_are_seen_through():
    script = 'N=4\nARGS=(--label -n $N)\nCMD=\'python train.py\'\nexec time srun "${ARGS[@]}" --exact $CMD --x "$CMD"\n'
    (launch,) = Batch(read(script)).launches
    assert launch.options == {"label": "", "ntasks": "4", "exact": ""}
    assert launch.program == ("python", "train.py", "--x", "python train.py")
    assert not launch.opaque


def test_a_variable_that_is_added_to_keeps_what_it_had():
    script = 'A=\'-c 8\'\nA="$A --label"\nB=(-n 2)\nB+=(--exact)\nsrun $A "${B[@]}" python train.py\nA=-c1\n'
    (launch,) = Batch(read(script)).launches
    assert launch.options == {"cpus-per-task": "8", "label": "", "ntasks": "2", "exact": ""}


def test_variables_of_variables_end():
    lines = ["A0=x", *(f'A{number}="$A{number - 1}$A{number - 1}$A{number - 1}"' for number in range(1, 40))]
    assert check("#!/bin/bash\n#SBATCH -t 1 -N 1\n" + "\n".join(lines) + "\nsrun $A39 python train.py\n") == ()


def test_unknown_options_are_said_to_be_unknown():
    (launch,) = Batch(read("srun $ARGS -n 2 python train.py\n")).launches
    assert launch.opaque
    assert launch.program == ("python", "train.py")


@given(st.text(alphabet=st.sampled_from(list("#SBATCH srun-='\"$(){}<>|&;\\\n\r\t\fA1\0é")), max_size=200))
def test_no_text_is_too_strange(text):
    script = "#!/bin/bash\n" + text
    assert all(1 <= found.line <= script.count("\n") + 1 for found in check(script))
