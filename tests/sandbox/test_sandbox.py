from pretrainctl.sandbox import Sandbox


def test_kill(sandbox: Sandbox) -> None:
    sandbox.kill_node("node02")
    sandbox.revive_node("node02")
    sandbox.kill_node("node03", silent=True)
