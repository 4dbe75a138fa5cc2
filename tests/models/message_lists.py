"""Message lists as other programs hold them: valid ones of each form, and `odd` ones with keys that nobody knows."""

import json
from typing import TypeAlias

from hypothesis import strategies as st

from tests.servers import signing
from tests.servers.gemini_rules import function_content
from tests.servers.pictures import PNG

Json: TypeAlias = dict[str, object]

CLAUDE, GEMINI = "claude-opus-4-7", "gemini-3.8-flash"

words = st.text(alphabet=st.sampled_from('ab {}"\\\n\té漢😀[]'), min_size=1, max_size=12).filter(str.strip)
names = st.sampled_from(["read_file", "grep", "list-dir"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=3,
)
objects = st.dictionaries(words, values, max_size=2)
flags = st.booleans()


class Drawn:
    """Draws a list; `odd`: with keys that are in no reference."""

    def __init__(self, draw: st.DrawFn, odd: bool) -> None:
        self.draw = draw
        self._odd = odd
        self.calls = 0

    def odd(self, fields: Json) -> Json:
        if self._odd and self.draw(flags):
            fields = {**fields, "x_unheard_of": self.draw(values)}
        return fields

    def times(self, least: int, most: int) -> range:
        return range(self.draw(st.integers(least, most)))

    def call_id(self) -> str:
        self.calls += 1
        return f"call_{self.calls}"


@st.composite
def anthropic_lists(draw: st.DrawFn, odd: bool = False) -> list[Json]:
    """Ends with the user, as the API wants it."""
    make = Drawn(draw, odd)
    messages: list[Json] = []

    def text() -> Json:
        return make.odd({"type": "text", "text": draw(words)})

    def picture() -> Json:
        return make.odd(
            {"type": "image", "source": make.odd({"type": "base64", "media_type": "image/png", "data": PNG})}
        )

    def asked() -> Json:
        if draw(flags):
            return {"role": "user", "content": draw(words)}
        parts = [text() if draw(flags) else picture() for _ in make.times(1, 3)]
        return make.odd({"role": "user", "content": parts})

    def result(call_id: str) -> Json:
        fields: Json = {"type": "tool_result", "tool_use_id": call_id}
        is_error = draw(flags)
        match draw(st.integers(0, 3)):
            case 0:
                fields["content"] = draw(words | st.just(""))
            case 1:
                fields["content"] = [text() for _ in make.times(0, 3)]
            case 2 if not is_error:
                fields["content"] = [text() if draw(flags) else picture() for _ in make.times(1, 3)]
        if is_error or draw(flags):
            fields["is_error"] = is_error
        return make.odd(fields)

    def thinking() -> Json:
        if draw(flags):
            return make.odd({"type": "redacted_thinking", "data": signing.sign(CLAUDE, "", "")})
        thought = draw(words | st.just(""))
        return make.odd({"type": "thinking", "thinking": thought, "signature": signing.sign(CLAUDE, "", thought)})

    messages.append(asked())
    for _ in make.times(0, 3):
        said = [thinking() for _ in make.times(0, 1)]
        made = [
            make.odd({"type": "tool_use", "id": make.call_id(), "name": draw(names), "input": draw(objects)})
            for _ in make.times(0, 3)
        ]
        said += [text() for _ in make.times(0 if made else 1, 2)]
        messages.append(make.odd({"role": "assistant", "content": said + made}))
        if made:
            answers = [result(str(call["id"])) for call in made]
            messages.append(make.odd({"role": "user", "content": answers + [text() for _ in make.times(0, 1)]}))
        else:
            messages.append(asked())
        messages += [asked() for _ in make.times(0, 1)]
    return messages


@st.composite
def gemini_lists(draw: st.DrawFn, odd: bool = False) -> list[Json]:
    make = Drawn(draw, odd)
    with_ids = draw(flags)

    def text() -> Json:
        return make.odd({"text": draw(words)})

    def picture() -> Json:
        return make.odd({"inlineData": make.odd({"mimeType": "image/png", "data": PNG})})

    def asked() -> Json:
        return make.odd({"role": "user", "parts": [text() if draw(flags) else picture() for _ in make.times(1, 3)]})

    def signed(part: Json, content: str = "text") -> Json:
        return {**part, "thoughtSignature": signing.sign(GEMINI, "", content)}

    def call(number: int) -> Json:
        fields: Json = {"name": draw(names)}
        if draw(flags):
            fields["args"] = draw(objects)
        if with_ids:
            fields = {"id": make.call_id(), **fields}
        part = make.odd({"functionCall": make.odd(fields)})
        return signed(part, function_content(fields)) if number == 0 or draw(flags) else part

    def response(part: Json) -> Json:
        called = part["functionCall"]
        assert isinstance(called, dict)
        outcome = draw(st.sampled_from(["output", "error"]))
        fields: Json = {
            "name": called["name"],
            "response": draw(objects | st.just({outcome: draw(words | st.just(""))})),
        }
        if "id" in called and draw(flags):
            fields["id"] = called["id"]
        if draw(flags):
            fields["parts"] = [picture()]
        return make.odd({"functionResponse": make.odd(fields)})

    messages = [asked()]
    for _ in make.times(0, 3):
        said = [make.odd({"text": draw(words), "thought": True}) for _ in make.times(0, 1)]
        said += [signed(text()) if draw(flags) else text() for _ in make.times(0, 2)]
        made = [call(number) for number in make.times(0 if said[1:] else 1, 3)]
        said += made
        said += [signed({"text": ""}) for _ in make.times(0, 1)]
        messages.append(make.odd({"role": "model", "parts": said}))
        if made:
            answers = [response(part) for part in made]
            # Models before 3.6 take a text with the responses.
            messages.append(make.odd({"role": "user", "parts": answers + [text() for _ in make.times(0, int(odd))]}))
        else:
            messages.append(asked())
        messages += [asked() for _ in make.times(0, 1)]
    return messages


@st.composite
def openai_lists(draw: st.DrawFn, odd: bool = False) -> list[Json]:
    make = Drawn(draw, odd)
    reused = draw(flags)

    def text() -> Json:
        return make.odd({"type": "text", "text": draw(words)})

    def picture() -> Json:
        link: Json = {"url": f"data:image/png;base64,{PNG}"}
        if draw(flags):
            link["detail"] = "low"
        return make.odd({"type": "image_url", "image_url": make.odd(link)})

    def system() -> Json:
        content: object = draw(words) if draw(flags) else [text() for _ in make.times(1, 2)]
        return make.odd({"role": draw(st.sampled_from(["system", "developer"])), "content": content})

    def asked() -> Json:
        content: object = draw(words)
        if draw(flags):
            content = [text() if draw(flags) else picture() for _ in make.times(1, 3)]
        message: Json = {"role": "user", "content": content}
        return make.odd({**message, "name": "ann"} if draw(flags) else message)

    def call(number: int) -> Json:
        call_id = f"call_{number}" if reused else make.call_id()
        written = draw(objects.map(json.dumps) | st.sampled_from(["", " {} ", '{"a": 1', "[1]"]))
        function = make.odd({"name": draw(names), "arguments": written})
        return make.odd({"id": call_id, "type": "function", "function": function})

    def said() -> Json:
        content: object = draw(words)
        match draw(st.integers(0, 3)):
            case 0:
                content = [text() for _ in make.times(1, 2)]
            case 1:
                return make.odd({"role": "assistant", "content": None, "refusal": draw(words)})
            case 2:
                content = [{"type": "refusal", "refusal": draw(words)}]
        message: Json = {"role": "assistant", "content": content}
        return make.odd({**message, "refusal": None, "audio": None} if draw(flags) else message)

    def answer(call: Json) -> Json:
        content: object = draw(words | st.just(""))
        if draw(flags):
            content = [text() for _ in make.times(1, 2)]
        return make.odd({"role": "tool", "tool_call_id": call["id"], "content": content})

    messages = [system() for _ in make.times(0, 2)]
    messages += [said() for _ in make.times(0, 1)]
    messages.append(asked())
    for _ in make.times(0, 3):
        calls = [call(number) for number in make.times(0, 3)]
        if not calls:
            messages += [said() for _ in make.times(1, 2)]
        else:
            message: Json = {"role": "assistant", "tool_calls": calls}
            if draw(flags):
                message["content"] = draw(st.none() | st.just("") | words)
            messages.append(make.odd(message))
            messages += [answer(call) for call in calls]
        messages += [system() for _ in make.times(0, 1)]
        messages += [asked() for _ in make.times(0, 2)]
    messages.append(asked())
    return messages


LISTS = {"anthropic": anthropic_lists, "gemini": gemini_lists, "openai": openai_lists}
