"""Time-outs are learned by phase; the clock is the test's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pretrainctl.records.launch import HangRule
from pretrainctl.recovery.pace import WARM_STEPS, Pace

RULE = HangRule(factor=8, start=1800, start_per_node=2, step=120, checkpoint=600, evaluation=1800)


class Program:
    """A program that says what it does; each word comes `seconds` after the one before."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.now = 1000.0
        self.step_done = 0
        pace.begin(self.now)

    def phase(self, name: str, seconds: float) -> None:
        self.now += seconds
        self.pace.hear({"kind": "phase", "phase": name, "step": self.step_done, "time": 0.0}, self.now)

    def steps(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.now += seconds
            self.step_done += 1
            self.pace.hear({"kind": "step", "step": self.step_done, "time": 0.0}, self.now)

    def start(self, seconds: float = 30.0) -> Program:
        self.phase("start", 5)
        self.phase("step", seconds)
        self.steps(WARM_STEPS + 1, 1.0)
        return self


def pace(*, nodes: int = 1, save_lead: float = 60.0, announces: bool = True) -> Pace:
    return Pace(replace(RULE, announces=announces), nodes=nodes, save_lead=save_lead)


def test_the_start_may_take_long_and_longer_on_many_nodes() -> None:
    few, many = pace(nodes=1), pace(nodes=512)
    for one in (few, many):
        one.begin(0.0)
    assert (few.limit, many.limit) == (1802, 2824)
    assert few.phase == "start"
    assert few.silent(1802.0) <= few.limit < few.silent(1803.0)


def test_the_first_steps_belong_to_the_start() -> None:
    learned = pace()
    program = Program(learned)
    program.phase("start", 5)
    program.phase("load", 20)
    program.phase("step", 100)
    for seconds in (700.0, 300.0, 40.0, 5.0):  # compilation, and a second one for another shape
        assert learned.limit >= 1802
        program.steps(1, seconds)
    program.steps(2, 1.0)
    assert learned.limit == RULE.step, "what the first steps took is no measure for the others"


def test_a_step_may_take_factor_times_what_steps_took() -> None:
    learned = pace()
    program = Program(learned).start()
    program.steps(20, 30.0)
    assert learned.limit == 8 * 30
    assert learned.reason == "8 times the 30.0 s that it took"


def test_before_a_step_was_seen_nothing_is_known_of_steps() -> None:
    """A model whose steps take longer than the least time is not hung when the start is over."""
    learned = pace()
    program = Program(learned)
    program.phase("step", 30)
    program.steps(WARM_STEPS, 400.0)
    assert learned.limit >= 1802
    assert learned.reason == "no step of this run was seen yet"
    program.steps(1, 400.0)
    assert learned.limit == 8 * 400


def test_a_step_that_took_long_once_may_do_so_again_and_is_no_measure_for_the_others() -> None:
    learned = pace()
    program = Program(learned).start()
    program.steps(149, 1.0)
    assert (learned.limit, learned.reason) == (120, "the least for step on this cluster")
    program.steps(1, 100.0)
    program.steps(10, 1.0)
    assert (learned.limit, learned.reason) == (200, "twice the 100.0 s that it took once")


def test_a_save_has_its_own_time() -> None:
    learned = pace(save_lead=500)
    program = Program(learned).start()
    program.steps(5, 1.0)
    program.phase("checkpoint", 0.1)
    assert learned.limit == 1000, "before the first one: twice the lead that the site's profile gives a save"
    program.phase("step", 200.0)
    assert learned.limit == RULE.step
    program.phase("checkpoint", 1.0)
    assert learned.limit == 1600


def test_a_phase_of_an_unknown_name_has_the_longest_time() -> None:
    program = Program(pace()).start()
    program.phase("sampling", 1.0)
    assert program.pace.limit == 1800


def test_a_program_of_which_little_is_known_may_save_or_evaluate_where_it_says_step() -> None:
    learned = pace(announces=False)
    program = Program(learned).start()
    assert learned.limit == 1800
    assert learned.reason == "the least for evaluation on this cluster, which may go on unsaid"
    program.phase("evaluation", 1.0)
    program.phase("step", 50.0)
    assert learned.limit == 600
    program.phase("checkpoint", 1.0)
    program.phase("step", 5.0)
    assert learned.limit == 120


def test_earlier_starts_are_learned_from_by_the_times_of_their_lines() -> None:
    learned = pace()
    steps = [{"kind": "step", "step": number, "time": 50.0 * number} for number in range(1, 20)]
    save = [{"kind": "phase", "phase": "checkpoint", "step": 19, "time": 951.0}]
    after = [{"kind": "phase", "phase": "step", "step": 19, "time": 1101.0}]
    learned.remember([*steps, *save, *after, None, {"kind": "step", "step": 500, "time": 9.0}, {}])
    program = Program(learned).start()
    assert learned.limit == 8 * 50
    program.phase("checkpoint", 1.0)
    assert learned.limit == 8 * 150


def test_a_wall_clock_that_was_set_back_teaches_nothing() -> None:
    learned = pace()
    lines = [{"kind": "step", "step": n, "time": t} for n, t in enumerate([9000.0, *range(20)])]
    learned.remember(lines)
    Program(learned).start()
    assert learned.limit == RULE.step


def test_what_is_not_known_is_no_silence_and_teaches_nothing() -> None:
    learned = pace()
    program = Program(learned).start()
    program.steps(10, 1.0)
    learned.forgive(program.now + 5000)
    assert learned.silent(program.now + 5001) == 1
    program.now += 5000
    program.steps(1, 1.0)
    assert learned.limit == RULE.step
    learned.excuse(40)
    assert learned.silent(program.now + 50) == 10


@pytest.mark.parametrize("phase", ["step", "checkpoint"])
def test_what_a_stamp_tells_counts_as_a_word_and_teaches_nothing(phase: str) -> None:
    learned = pace()
    program = Program(learned).start()
    learned.see(phase, 77, program.now + 10_000)
    assert (learned.phase, learned.step, learned.silent(program.now + 10_001)) == (phase, 77, 1)
    learned.see("step", 78, program.now + 20_000)
    assert learned.limit == RULE.step


def lines_of(*silences: tuple[str, float], announces: bool = True) -> list[dict[str, object]]:
    """Lines of a start with ten steps of a second first, then these silences, each in its phase."""
    now, lines = 0.0, []
    for phase, seconds in [("step", 1.0)] * 10 + list(silences):
        if phase != "step" and announces:
            lines.append({"kind": "phase", "phase": phase, "step": 1, "time": now + 0.1})
        now += seconds
        kind = "phase" if phase != "step" and announces else "step"
        lines.append({"kind": kind, "phase": "step", "step": len(lines), "time": now})
    return lines


@pytest.mark.parametrize("seconds", [130.0, 600.0, 3600.0, 30 * 86400.0, 1e300])
@pytest.mark.parametrize("times", [1, 3])
def test_a_pause_that_was_excused_teaches_nothing_to_the_next_start(seconds: float, times: int) -> None:
    """A job that is suspended, or a clock that is set, in the middle of a step."""
    learned = pace()
    learned.remember(lines_of(*[("step", seconds), ("step", 1.0)] * times))
    Program(learned).start()
    assert learned.limit == RULE.step


def test_a_pause_within_the_time_out_may_come_again() -> None:
    learned = pace()
    learned.remember(lines_of(*[("step", 1.0)] * 100, ("step", 100.0)))
    Program(learned).start()
    assert learned.limit == 200


@pytest.mark.parametrize(("phase", "least"), [("checkpoint", 600.0), ("evaluation", 1800.0)])
def test_what_is_slow_again_and_again_is_no_pause(phase: str, least: float) -> None:
    """Its time-out was longer once, by what starts had shown that are no longer remembered."""
    once, often = pace(), pace()
    once.remember(lines_of((phase, 2.5 * least)))
    often.remember(lines_of(*[(phase, 2.5 * least)] * 3))
    for learned, limit in ((once, least), (often, 8 * 2.5 * least)):
        program = Program(learned).start()
        program.phase(phase, 1.0)
        assert learned.limit == pytest.approx(limit, rel=0.01)


def test_pauses_in_saves_lengthen_their_time_out_within_bounds() -> None:
    learned = pace()
    learned.remember(lines_of(*[("checkpoint", 86400.0)] * 5))
    program = Program(learned).start()
    program.phase("checkpoint", 1.0)
    assert learned.limit == 8 * RULE.checkpoint


def test_a_save_that_is_not_announced_may_be_slow_again_and_again() -> None:
    learned = pace(announces=False)
    learned.remember(lines_of(*[("step", 2000.0), ("step", 1.0)] * 3, announces=False))
    Program(learned).start()
    assert learned.limit >= 2000
