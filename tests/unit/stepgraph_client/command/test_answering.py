from __future__ import annotations

import pytest

from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph_client.command import answering
from stepgraph_client.identity import caller_name


@pytest.fixture(autouse=True)
def question(server):
    asked = Interrupt(
        interrupt_id="q",
        run_id="r",
        node_id="ask",
        status=InterruptStatus.INTERRUPT_STATUS_OPEN,
    )
    asked.reason.human.prompt = "Deploy?"
    server.questions["q"] = asked
    return asked


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--proceed",), "proceed"),
        (("--with", "a=b", "--with", "n:=3"), "proceed_with"),
        (("--proceed", "--with", "a=b"), "proceed_with"),
        (("--message", "hurry"), "proceed_with"),
        (("--args", '{"q": 1}'), "proceed_with"),
        (("--revise", "shorter"), "revise"),
        (("--choose", "yes"), "choose"),
        (("--abort", "no"), "abort"),
        (("--abort", ""), "abort"),
        (("--reply", "x"), "reply"),
        (("--reply-json", "[1]"), "reply"),
        (("--failed", "BROKEN: it broke"), "failed"),
    ],
    ids=" ".join,
)
def test_every_answer_can_be_given(run, server, question, words, kind) -> None:
    question.options.add(id="yes")
    ended = run("answer", "q", *words)
    assert ended.code == 0
    assert ended.out.startswith("q: ")
    (request,) = server.requests["AnswerInterrupt"]
    assert request.answer.WhichOneof("kind") == kind
    assert request.answered_by == caller_name()


def test_changes_arrive_with_their_types(run, server) -> None:
    run("answer", "q", "--with", "a=3", "--with", "n:=3", "--args", '{"q": 1.0}', "--json")
    changes = server.requests["AnswerInterrupt"][0].answer.proceed_with
    assert (changes.variables["a"].text, changes.variables["n"].json) == ("3", "3")
    assert changes.tool_args == '{"q": 1.0}'


@pytest.mark.parametrize(
    "words", [(), ("--proceed", "--abort", "x"), ("--reply", "a", "--reply-json", "1")], ids=len
)
def test_exactly_one_answer_is_to_be_given(run, server, words) -> None:
    ended = run("answer", "q", *words)
    assert ended.code == 2
    assert "give one answer" in ended.err
    assert not server.requests["AnswerInterrupt"]


def test_whoever_comes_second_learns_who_was_first(run) -> None:
    run("answer", "q", "--proceed", "--as", "ada")
    assert run("answer", "q", "--proceed", "--as", "bob").code == 0
    ended = run("answer", "q", "--abort", "no")
    assert ended.code == 3
    assert "INTERRUPT_ANSWERED: bob was first" in ended.err


def test_another_system_answers_with_its_token(run, server, question) -> None:
    server.questions["token"] = question
    assert run("answer", "--token", "token", "--reply", "x").code == 0
    (request,) = server.requests["AnswerInterrupt"]
    assert (request.external_token, request.answer.reply.value.text) == ("token", "x")
    assert not server.requests["GetInterrupt"]
    for words in ((), ("q", "--token", "token")):
        ended = run("answer", *words, "--proceed")
        assert ended.code == 2
        assert "by its id, or by its --token" in ended.err


SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--choose", "no"), "q has no option 'no'; there are yes"),
        (("--proceed",), "q wants values with its answer; give them by --with"),
        (("--with", "n=3"), "n: '3' is not of type 'integer'"),
        (("--with", "m:=3"), "'n' is a required property"),
        (("--reply-json", '{"n": "x"}'), "n: 'x' is not of type 'integer'"),
    ],
    ids=" ".join,
)
def test_what_does_not_fit_is_refused_before_it_is_sent(run, server, question, words, said) -> None:
    question.options.add(id="yes")
    question.answer_schema = SCHEMA
    ended = run("answer", "q", *words)
    assert ended.code == 2
    assert said in ended.err
    assert not server.requests["AnswerInterrupt"]


@pytest.mark.parametrize(
    "words", [("--proceed",), ("--with", "a=b"), ("--revise", "x"), ("--abort", "x")], ids=" ".join
)
def test_a_step_program_is_given_a_value(run, server, question, words) -> None:
    """It does not know what to go on, or to stop, would mean."""
    question.takes_reply, question.answer_schema = True, '{"type": "integer"}'
    ended = run("answer", "q", *words)
    assert ended.code == 2
    assert "takes a value; give it by --reply-json JSON or --failed CODE" in ended.err
    ended = run("answer", "q", "--reply", "7")
    assert "--reply-json gives anything else" in ended.err
    assert not server.requests["AnswerInterrupt"]
    assert run("answer", "q", "--reply-json", "7").code == 0


@pytest.mark.parametrize("words", [("--with", "n:=3"), ("--reply-json", '{"n": 3}')], ids=" ".join)
def test_what_fits_is_sent(run, question, words) -> None:
    question.answer_schema = SCHEMA
    assert run("answer", "q", *words).code == 0


@pytest.fixture
def call(question):
    question.task_id = "1/act/t0/e0"
    question.tool.tool_name = "pay"
    question.tool.input_schema = '{"type": "object", "properties": {"sum": {"type": "integer"}}}'
    return question


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--args", '{"sum": "x"}'), "sum: 'x' is not of type 'integer'"),
        (("--args", "[1]"), "is not of type 'object'"),
        (("--with", "a=b"), "about one call of pay: --args changes it"),
        (("--message", "hurry"), "nothing else can be given"),
        (("--choose", "yes"), "it has no options"),
    ],
    ids=" ".join,
)
def test_what_a_call_does_not_take_is_refused_before_it_is_sent(
    run, server, call, words, said
) -> None:
    ended = run("answer", "q", *words)
    assert ended.code == 2
    assert said in ended.err
    assert not server.requests["AnswerInterrupt"]


def test_the_arguments_of_a_call_can_be_changed(run, server, call) -> None:
    assert run("answer", "q", "--args", '{"sum": 3}').code == 0
    assert server.requests["AnswerInterrupt"][0].answer.proceed_with.tool_args == '{"sum": 3}'


def test_a_person_at_a_terminal_can_change_a_call(run, server, call, at_terminal) -> None:
    assert run("answer", "q", typed=b'args\n{"sum": 3}\n').code == 0
    assert server.requests["AnswerInterrupt"][0].answer.proceed_with.tool_args == '{"sum": 3}'


def test_a_schema_that_can_not_be_read_is_left_to_the_server(run, question) -> None:
    question.answer_schema = "{"
    assert run("answer", "q", "--with", "n:=3").code == 0


def test_a_choice_where_there_is_none_says_so(run) -> None:
    assert "it has no options" in run("answer", "q", "--choose", "x").err


@pytest.fixture
def at_terminal(monkeypatch):
    monkeypatch.setattr(answering, "_is_at_terminal", lambda _out: True)


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (b"proceed\n", "proceed"),
        (b"revise\nshorter\n", "revise"),
        (b"perhaps\nabort\n\n", "abort"),
    ],
)
def test_a_person_at_a_terminal_is_asked(run, server, at_terminal, typed, kind) -> None:
    """The question is shown first; what is no answer is asked for again."""
    ended = run("answer", "q", typed=typed)
    assert ended.code == 0
    assert ended.out.index("? ask: Deploy?") < ended.out.index("answer")
    assert server.requests["AnswerInterrupt"][0].answer.WhichOneof("kind") == kind


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (b"reply\nyes\n", "reply"),
        (b"reply-json\n[1]\n", "reply"),
        (b"proceed\nfailed\nNOBODY: away\n", "failed"),
    ],
)
def test_a_person_is_asked_for_the_value_that_a_program_takes(
    run, server, question, at_terminal, typed, kind
) -> None:
    """To go on, or to revise, is not offered."""
    question.takes_reply = True
    assert run("answer", "q", typed=typed).code == 0
    assert server.requests["AnswerInterrupt"][0].answer.WhichOneof("kind") == kind


def test_a_person_is_asked_for_what_the_question_wants(run, server, question, at_terminal) -> None:
    question.answer_schema = SCHEMA
    assert run("answer", "q", typed=b"with\nn:=3\n").code == 0
    question.status = InterruptStatus.INTERRUPT_STATUS_OPEN
    question.options.add(id="yes")
    assert run("answer", "q", typed=b"choose\nyes\n").code == 0
    question.status = InterruptStatus.INTERRUPT_STATUS_OPEN
    question.reason.external.token = "t"
    question.answer_schema = ""
    assert run("answer", "q", typed=b"reply\nx\n").code == 0
    kinds = [each.answer.WhichOneof("kind") for each in server.requests["AnswerInterrupt"]]
    assert kinds == ["proceed_with", "choose", "reply"]


def test_nobody_is_asked_what_was_answered(run, question, at_terminal) -> None:
    question.status = InterruptStatus.INTERRUPT_STATUS_ANSWERED
    question.answer.proceed.SetInParent()
    ended = run("answer", "q")
    assert ended.code == 3
    assert "q is not open any more" in ended.err


def test_a_person_who_gives_no_answer_ends_it_like_ctrl_c(run, server, at_terminal) -> None:
    """And not as if a run had failed."""
    ended = run("answer", "q", typed=b"")
    assert ended.code == 130
    assert ended.err.endswith("Stopped.\n")
    assert not server.requests["AnswerInterrupt"]
