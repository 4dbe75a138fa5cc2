"""Which shell commands of the user's are given the terminal, and which have no effect."""

from tui_agent.tui.commands.shell import needs_terminal, only_changes_folder

NEED_IT = (
    "vim|vim notes.txt|/usr/bin/top|TERM=xterm htop -d 5|python3|python3 -i|less big.log|git commit|git commit --amend"
    "|git rebase -i HEAD~3|git add -p|ssh host uptime"
)
WATCHED = (
    "|ls -la|python3 -c 'print(1)'|python3 script.py|bash build.sh|echo vim|git commit -m done|git commit -am done"
    "|git log -p|$(which vim)|'unclosed"
)


def test_programs_that_need_the_terminal_and_programs_that_are_watched() -> None:
    assert [command for command in NEED_IT.split("|") if not needs_terminal(command)] == []
    watched = [*WATCHED.split("|"), "vim | cat", "cat big.log | less; echo done"]
    assert [command for command in watched if needs_terminal(command)] == []


def test_a_change_of_folder_alone_has_no_effect() -> None:
    assert all(map(only_changes_folder, ("cd", "cd /tmp", "pushd src")))
    assert not any(map(only_changes_folder, ("cd /tmp && ls", "cdrecord", "ls", "(cd src; make)")))
