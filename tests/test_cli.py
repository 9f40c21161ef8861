"""The command line as scripts see it: stdout, stderr, files, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import lilliput
from lilliput.cli.main import VERBS, run
from lilliput.cli.main import lilliput as lilliput_command
from lilliput.cli.options import Ids
from lilliput.engine.census import take_census
from lilliput.engine.engine import Engine
from lilliput.engine.source import Source
from lilliput.text.bytelevel import byte_level_files
from lilliput.trace import HEADER
from lilliput.weights.experts import slot_bytes

ORACLES = Path(__file__).parent / "oracle"
TINY_A = str(ORACLES / "tiny-a")
EXPECTED = {name: json.loads((ORACLES / name / "expected.json").read_text()) for name in ("tiny-a", "tiny-b")}


def text_of(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The real program in a process of its own."""
    return subprocess.run([sys.executable, "-m", "lilliput", *arguments], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = shutil.copytree(TINY_A, tmp_path_factory.mktemp("cli") / "tiny a ü")
    for name, raw in byte_level_files(320).items():
        (directory / name).write_bytes(raw)
    return str(directory)


@pytest.mark.parametrize("name", ["tiny-a", "tiny-b"])
def test_generate_reproduces_the_oracles_greedy_ids(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = EXPECTED[name]
    n = str(len(expected["greedy_ids"]))
    assert run(["generate", str(ORACLES / name), "--ids", text_of(expected["prompt_ids"]), "-n", n]) == 0
    out, err = capsys.readouterr()
    assert out == text_of(expected["greedy_ids"]) + "\n"
    assert "peak RSS" in err


def test_text_streams_to_stdout_and_everything_else_to_stderr(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", speaker, "Once", "-n", "8", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert run(["generate", speaker, "Once", "-n", "8", "-q"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (report["text"] + "\n", "")
    assert len(report["prompt_ids"]) == 4  # a byte-level tokenizer
    assert len(report["ids"]) == 8
    for key in ("versions", "isa", "threads", "config_sha256", "timings", "finish_reason", "peak_rss_bytes"):
        assert report[key], key


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_prompt_from_a_file_or_stdin_is_taken_byte_for_byte(way: str, speaker: str, tmp_path: Path) -> None:
    raw = "  zwei\r\nZeilen 漢字 \n".encode()
    (tmp_path / "p.txt").write_bytes(raw)
    arguments = ["generate", speaker, "-f", str(tmp_path / "p.txt") if way == "file" else "-", "-n", "1", "--json", "-"]
    done = subprocess.run([sys.executable, "-m", "lilliput", *arguments], input=raw, capture_output=True, check=True)
    decoded = command("tokenize", speaker, "--decode", text_of(json.loads(done.stdout)["prompt_ids"]), "--json", "-")
    assert json.loads(decoded.stdout)["text"].encode() == raw


def test_sampling_is_reported_and_repeatable(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", TINY_A, "--ids", "1,2,3", "-n", "6", "--temp", "1.5", "--json", "-"]
    assert run(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert run([*arguments, "--seed", str(first["sampling"]["seed"])]) == 0
    assert json.loads(capsys.readouterr().out)["ids"] == first["ids"]
    assert run([*arguments[:-4], "--temp", "0", "--json", "-"]) == 0
    assert run(["generate", TINY_A, "--ids", "1,2,3", "-n", "6", "-q"]) == 0
    zero, greedy = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert json.loads(zero)["ids"] == [int(i) for i in greedy.split(",")]


def test_logits_of_generation_and_of_teacher_forcing_are_the_same_bits(tmp_path: Path) -> None:
    generated, forced, last = (str(tmp_path / f"{n}.npy") for n in "gfl")
    prompt, new = EXPECTED["tiny-a"]["prompt_ids"], EXPECTED["tiny-a"]["greedy_ids"][:4]
    assert run(["generate", TINY_A, "--ids", text_of(prompt), "-n", "5", "--logits", generated, "-q"]) == 0
    assert run(["logits", TINY_A, "--ids", text_of(prompt + new), "--all", "-o", forced, "-q"]) == 0
    assert run(["logits", TINY_A, "--ids", text_of(prompt + new), "-o", last, "-q"]) == 0
    assert np.load(forced).dtype == np.float32
    assert np.array_equal(np.load(generated), np.load(forced)[len(prompt) - 1 :])
    assert np.array_equal(np.load(last), np.load(forced)[-1:])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.npy", "g.npy", "l.npy"]


def test_verbose_says_how_the_run_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["--ids", "1", "--memory", "900MB"]
    for verb in (
        ["generate", TINY_A, "-n", "1", *ids],
        ["logits", TINY_A, "-o", str(tmp_path / "l.npy"), *ids],
        ["plan", TINY_A, "--memory", "900MB"],
        ["bench", "prefill", TINY_A, "--tokens", "1", "--repeats", "1", "--memory", "900MB"],
    ):
        for verbose in ([], ["-v"]):
            assert run([*verb, "--threads", "1", *verbose]) == 0
            assert ("layers; " in capsys.readouterr().err) == bool(verbose)


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, recorded = str(tmp_path / "m.npy"), str(ORACLES / "tiny-a" / "logits.npy")
    ids = text_of(EXPECTED["tiny-a"]["prompt_ids"] + EXPECTED["tiny-a"]["greedy_ids"])
    assert run(["logits", TINY_A, "--ids", ids, "--all", "-o", mine, "-q"]) == 0
    assert run(["compare", mine, recorded, "--atol", "0.01"]) == 0
    assert "argmax equal in 36 of 36 rows" in capsys.readouterr().out
    assert run(["compare", mine, recorded]) == 1
    assert run(["compare", mine, mine]) == 0
    assert "the same bits" in capsys.readouterr().out
    assert run(["compare", mine, str(tmp_path / "absent.npy")]) == 2


def test_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", TINY_A, "--json", "-"]) == 0
    census = json.loads(capsys.readouterr().out)
    assert (census["total"]["tensors"], census["total"]["nbytes"]) == (1495, 4_334_752)  # the oracle's README
    assert [line["part"] for line in census["lines"]] == ["routed", "shared", "attention", "embedding", "other", "vision"]
    assert run(["inspect", TINY_A]) == 0
    assert "routed" in capsys.readouterr().out


def test_the_name_of_a_directory_is_no_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    census = replace(take_census(TINY_A), directory="/m/[b][/x]:car:")
    monkeypatch.setattr("lilliput.cli.inspect.take_census", lambda model: census)
    assert run(["inspect", TINY_A]) == 0
    assert capsys.readouterr().out.startswith("/m/[b][/x]:car:: 13 layers")


def test_tokenize_there_and_back(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokenize", speaker, "Hello <|open|>"]) == 0
    plain = capsys.readouterr().out.strip()
    assert run(["tokenize", speaker, "Hello <|open|>", "--special"]) == 0
    special = capsys.readouterr().out.strip()
    assert len(special.split(",")) < len(plain.split(","))
    assert run(["tokenize", speaker, "--decode", plain]) == 0
    assert capsys.readouterr().out == "Hello <|open|>\n"


@pytest.mark.parametrize(("typed", "meant"), [("genrate", "generate"), ("simulat", "simulate"), ("pakc", "pack"), ("xyz", None)])
def test_a_verb_that_is_nearly_one_is_suggested(typed: str, meant: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([typed]) == 2
    err = capsys.readouterr().err
    assert f"No such command '{typed}'." in err
    assert (f"Did you mean '{meant}'?" in err) if meant else "mean" not in err


def test_the_closing_lines_tell_no_speed_of_what_was_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = str(tmp_path / "s")
    assert run(["generate", TINY_A, "--ids", "1,2,3", "-n", "2", "--session", session]) == 0
    err = capsys.readouterr().err
    assert "prompt of 3 at" in err
    assert "while reading;" in err  # a few KB: no speed of a disk, so it is not set beside the plan's
    assert run(["generate", TINY_A, "-n", "2", "--session", session]) == 0
    assert "prompt of" not in capsys.readouterr().err


def test_a_session_file_continues_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = str(tmp_path / "s")
    prompt, new = EXPECTED["tiny-b"]["prompt_ids"], EXPECTED["tiny-b"]["greedy_ids"][:7]
    model = str(ORACLES / "tiny-b")
    assert run(["generate", model, "--ids", text_of(prompt), "-n", "3", "--session", session, "-q"]) == 0
    assert run(["generate", model, "--session", session, "-n", "4", "-q"]) == 0
    assert capsys.readouterr().out == text_of(new[:3]) + "\n" + text_of(new[3:]) + "\n"
    assert run(["generate", TINY_A, "--session", session, "-n", "4", "-q"]) == 2


def test_a_trace_of_experts_is_what_the_router_chose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(tmp_path / "t.bin")
    assert run(["generate", TINY_A, "--ids", text_of(EXPECTED["tiny-a"]["prompt_ids"]), "-n", "1", "--trace-experts", trace, "-q"]) == 0
    routing = np.load(ORACLES / "tiny-a" / "routing.npz")["idx"][:, : len(EXPECTED["tiny-a"]["prompt_ids"])]  # layers 1 to 12
    pairs = np.fromfile(trace, "<i4", offset=HEADER.size).reshape(-1, 2)
    assert np.array_equal(pairs[:, 1], routing.reshape(-1))
    assert np.array_equal(pairs[:, 0], np.repeat(np.arange(1, 13), routing[0].size))
    capsys.readouterr()
    assert run(["simulate", trace, "--sizes", "1MB", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tokens"] == len(EXPECTED["tiny-a"]["prompt_ids"])
    experts = Source(TINY_A).layout.experts
    assert experts is not None
    assert report["expert_bytes"] == report["recorded_expert_bytes"] == slot_bytes(experts)


def test_a_trace_of_layers_without_experts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", TINY_A, "--ids", "1", "--layers", "1", "--trace-experts", str(tmp_path / "t")]) == 2
    assert "--trace-experts: needed a layer with experts, found none in the first 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# Every option that takes a list; what an empty place in it is told.
LISTS = {
    "--ids": (["generate", TINY_A], "1", "whole numbers separated by commas (1,2,3)"),
    "--decode": (["tokenize", "demo"], "1", "whole numbers separated by commas (1,2,3)"),
    "--sizes": (["simulate", __file__], "8GB", "sizes separated by commas (8GB,16GB)"),
    "--rungs": (["bench", "ladder", TINY_A], "8GB", "sizes separated by commas (8GB,16GB)"),
    "--tokens": (["bench", "prefill", TINY_A], "8", "whole numbers above zero, separated by commas"),
    "--threads": (["bench", "kernels"], "1", "whole numbers above zero, separated by commas"),
    "--kernels": (["bench", "kernels"], "k12", "names separated by commas"),
    "--isa": (["bench", "kernels"], "scalar", "names separated by commas"),
}


@pytest.mark.parametrize("option", LISTS)
def test_a_list_with_an_empty_place_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb, entry, needed = LISTS[option]
    for text, place in ((f"{entry},,{entry}", 2), (f"{entry}, ,{entry}", 2), (f"{entry},", 2), (f",{entry}", 1), (",", 1)):
        assert run([*verb, option, text]) == 2, text
        assert capsys.readouterr() == ("", f"lilliput: {option}: needed {needed}, found nothing as entry {place} of {text!r}\n")
    for text in ("", " "):
        assert run([*verb, option, text]) == 2
        assert capsys.readouterr() == ("", f"lilliput: {option}: needed {needed}, found nothing\n")


def test_every_option_that_takes_a_list_is_known_here() -> None:
    """By its metavar or its type."""
    found = set()
    commands: list[Any] = [lilliput_command]
    for command_ in commands:
        if isinstance(command_, click.Group):
            commands += [command_.get_command(click.Context(command_), name) for name in command_.list_commands(click.Context(command_))]
        lists = [p for p in command_.params if isinstance(p.type, Ids) or (p.metavar or "").endswith(",...")]
        found |= {p.opts[-1] for p in lists}
    assert found == set(LISTS)


def test_ids_are_separated_by_commas_or_white_space(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("71,72", "71 72", " 71 ,\n72 "):
        assert run(["tokenize", "demo", "--decode", text]) == 0
        assert capsys.readouterr().out == "hi\n"


USAGE = {
    "no prompt": (["generate", TINY_A], "exactly one of PROMPT, -f FILE or --ids"),
    "two prompts": (["generate", TINY_A, "x", "--ids", "1"], "found PROMPT and --ids"),
    "bad ids": (["generate", TINY_A, "--ids", "1,x"], "found 'x'"),
    "negative id": (["generate", TINY_A, "--ids", "-1"], "-1"),
    "id too large": (["generate", TINY_A, "--ids", "320"], "needed 0 to 319"),
    "text without tokenizer": (["generate", TINY_A, "x"], "no tiktoken.model"),
    "no such model": (["generate", "/nowhere", "x"], "/nowhere: needed a checkpoint directory"),
    "a file as model": (["generate", __file__, "x"], "found a file"),
    "temp": (["generate", TINY_A, "--ids", "1", "--temp", "-1"], "--temp"),
    "temp nan": (["generate", TINY_A, "--ids", "1", "--temp", "nan"], "--temp"),
    "top-p": (["generate", TINY_A, "--ids", "1", "--top-p", "0"], "--top-p"),
    "top-k": (["generate", TINY_A, "--ids", "1", "--top-k", "-1"], "--top-k"),
    "min-p": (["generate", TINY_A, "--ids", "1", "--min-p", "1.5"], "--min-p"),
    "seed": (["generate", TINY_A, "--ids", "1", "--temp", "1", "--seed", "-5"], "--seed"),
    "greedy and sampling": (["generate", TINY_A, "--ids", "1", "--greedy", "--temp", "1"], "--greedy"),
    "seed at temperature 0": (["generate", TINY_A, "--ids", "1", "--seed", "5", "--temp", "0"], "--temp 0: needed alone, found --seed"),
    "a dash for a file": (["generate", TINY_A, "--ids", "1", "--trace-experts", "-"], "--trace-experts: needed a file, found -"),
    "empty isa": (["generate", TINY_A, "--ids", "1", "--isa", ""], "--isa: needed one of"),
    "prompt beyond context": (["plan", TINY_A, "-c", "100", "--prompt", "101"], "--prompt: needed at most --context, 100"),
    "threads": (["generate", TINY_A, "--ids", "1", "--threads", "0"], "--threads"),
    "isa": (["generate", TINY_A, "--ids", "1", "--isa", "sse9"], "--isa"),
    "layers": (["generate", TINY_A, "--ids", "1", "--layers", "99"], "--layers"),
    "unknown verb": (["dance"], "dance"),
    "unknown option": (["generate", TINY_A, "--ids", "1", "--warp", "9"], "--warp"),
    "synth over files": (["synth", TINY_A, "--shape", "tiny"], "tiny-a"),
    "prompt file absent": (["generate", TINY_A, "-f", "/nowhere.txt"], "/nowhere.txt"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_errors_end_with_code_2_and_one_message(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = USAGE[case]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_a_prompt_with_bytes_that_are_no_text_is_refused(speaker: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"ok \xff")
    done = command("generate", speaker, "-f", str(tmp_path / "p"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "byte 0xff at 3" in done.stderr
    argv = [sys.executable.encode(), b"-m", b"lilliput", b"generate", speaker.encode(), b"caf\xe9"]
    by_argv = subprocess.run(argv, capture_output=True, check=False, env=os.environ | {"LC_ALL": "C.UTF-8"})
    assert by_argv.returncode == 2
    assert b"Traceback" not in by_argv.stderr


def interrupted(signal_number: int, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """generate, sent a signal once the first token is out."""
    arguments = [sys.executable, "-u", "-m", "lilliput", "generate", TINY_A, "--ids", "1,2,3", "-n", "1000000", *options]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=tmp_path)
    assert process.stdout is not None
    first = process.stdout.read(1)
    process.send_signal(signal_number)
    out, err = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, (first + out).decode(), err.decode())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_cleanly_with_what_is_complete(number: int, code: int, tmp_path: Path) -> None:
    done = interrupted(number, tmp_path, "--json", "r.json", "--session", "s")
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    ids = json.loads((tmp_path / "r.json").read_text())["ids"]
    assert done.stdout == text_of(ids) + "\n"
    resumed = command("generate", TINY_A, "--session", str(tmp_path / "s"), "-n", "3", "-q")
    straight = command("generate", TINY_A, "--ids", "1,2,3", "-n", str(len(ids) + 3), "-q")
    assert done.stdout.strip() + "," + resumed.stdout == straight.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_program_loads(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(f"import os; os.kill(os.getpid(), {number}); [None for _ in range(9)]")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = command("inspect", TINY_A, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_is_not_worth_a_traceback() -> None:
    line = f"{sys.executable} -m lilliput generate {TINY_A} --ids 1,2,3 -n 2000 | head -c 3"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert len(done.stdout) == 3


def test_help_and_version_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert run(["--help"]) == 0
    for verb in VERBS:
        assert run([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)


def test_only_verbs_that_exist_are_recommended() -> None:
    package = Path(lilliput.__file__).parent
    texts = [file.read_text() for file in package.rglob("*.py")] + [file.read_text() for file in package.rglob("*.md")]
    named = {verb for text in texts for verb in re.findall(r"`lilliput ([a-z]+)", text)}
    assert {"pack", "generate"} <= named <= set(VERBS)


def test_windows_is_refused_in_one_sentence_that_names_wsl2() -> None:
    code = "import sys; sys.platform = 'win32'; import lilliput"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: Lilliput does not run on Windows itself; install it inside WSL2" in done.stderr


def test_an_old_processor_is_told_about_numpy(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(
        "raise RuntimeError('NumPy was built with baseline optimizations: (X86_V2) but your machine does not support: (X86_V2).')"
    )
    argv, path = [sys.executable, "-c", "import lilliput; lilliput.open"], os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=path)
    assert "ImportError: this processor lacks SSE4.2" in done.stderr


@pytest.mark.parametrize("second", ["--session", "--trace-experts", "--json"])
def test_two_outputs_in_one_file_are_refused_before_anything_is_written(
    second: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = str(tmp_path / "x"), str(tmp_path / "." / "x")
    assert run(["generate", TINY_A, "--ids", "1,2", "-n", "1", "--logits", one, second, other]) == 2
    err = capsys.readouterr().err
    assert "--logits" in err
    assert second in err
    assert not list(tmp_path.iterdir())


def test_what_a_run_keeps_of_every_token_is_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[int] = []

    class Noted(Engine):
        def __init__(self, *given: Any, reserve: int, **more: Any) -> None:
            reserved.append(reserve)
            super().__init__(*given, reserve=reserve, **more)
            own = next(line.nbytes for line in self.plan.lines if line.name == "process")
            assert own >= reserve + 10_000_000  # and the process itself

    monkeypatch.setattr("lilliput.cli.generate.Engine", Noted)
    for more in ([], ["--logits", str(tmp_path / "l.npy")]):
        assert run(["generate", TINY_A, "--ids", "1,2", "-n", "3", "-q", *more]) == 0
    vocabulary = json.loads((ORACLES / "tiny-a" / "config.json").read_text())["text_config"]["vocab_size"]
    assert reserved[1] - reserved[0] == 3 * 4 * vocabulary
    assert reserved[0] >= 3 * 1000
