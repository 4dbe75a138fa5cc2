"""What of a page is kept, piece by piece."""

import pytest

from tui_agent.tools.web.html import MAX_TITLE, to_markdown

URL = "https://a.example/d/p#part"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<p>a <a href='x?y'>b</a>", "a [b](https://a.example/d/x?y)"),
        ("<p><a href='http://b.example/'>b</a><a href='mailto:c@d.e'>m</a>", "[b](http://b.example/)[m](mailto:c@d.e)"),
        ("<p>a <a href='#here'>b</a><a href='javascript:x'>c</a><a href='data:x'>d</a>", "a bcd"),
        ("<p>a<a href='#here'>#</a><a href='#x'><b>¶</b></a><a href='#y'><b><i>§</i></b></a><a></a> b", "a b"),
        ("<p><a href='#x'>¶ one</a> <a href='#y'><i>¶</i> two</a>", "¶ one *¶* two"),
        ("<p><a href='http://[broken'>b</a>", "b"),
        ("<base href='/e/'><base href='/f/'><a href='x'>b</a>", "[b](https://a.example/e/x)"),
        ("<base href='http://[broken'><a href='x'>b</a>", "[b](https://a.example/d/x)"),
        ("<body><base href='/e/'><a href='x'>b</a>", "[b](https://a.example/d/x)"),
        ("<p><img src='p (1).png' alt=' [a]\n b '>", "![a b](<https://a.example/d/p (1).png>)"),
        ("<p><img src='p.png' alt='a'><img src='q.png'><img alt=c src='data:x'>", "![a](https://a.example/d/p.png)![c]"),
        ("<p>a<script>s</script><style>t</style><svg>u</svg><button>v</button><template>w</template> b", "a\n\nb"),
        ("<p>a<b hidden>s</b><i style='Display : none'>t</i><i style='visibility:hidden'>u</i><u id=x> b</u>", "a b"),
        ("<dl><dt>t<dd>m</dl><details><summary>s</summary>d</details>", "t\n\nm\n\ns\n\nd"),
        ("<figure><img><figcaption>c</figcaption></figure><p>1 < 2 <3", "c\n\n1 &lt; 2 &lt;3"),
        ("<p>\ue0000\ue001 a", "0 a"),
    ],
)  # fmt: skip
def test_what_of_a_page_is_kept(source: str, text: str) -> None:
    assert to_markdown(source, URL).text == text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            "<tr><th>k<th>v<th>w<tr><td>a|b<td> <b>c</b>\n d",
            "| k | v | w |\n| --- | --- | --- |\n| a\\|b | **c** d |  |",
        ),
        ("<caption>t<tr><td>a<td>b<tr><td>c<td>d", "| a | b |\n| --- | --- |\n| c | d |"),
        ("<tr><td>a<td>b", "a\n\nb"),
        ("<tr><td>a<tr><td>b", "a\n\nb"),
        ("<tr><td>{}<td>x<tr><td>y<td>z", "| a | b |\n| --- | --- |\n| c | d |\n\nx\n\ny\n\nz"),
        ("<tr><td><a href=/>l</a><td><img src=/ alt=p><tr>", "[l](https://a.example/)\n\n![p](https://a.example/)"),
        (
            "<tr><td><a href=/>l</a><td><img src=/ alt=p><tr><td>c",
            "| [l](https://a.example/) | ![p](https://a.example/) |\n| --- | --- |\n| c |  |",
        ),
    ],
)
def test_only_a_table_of_data_stays_one(rows: str, text: str) -> None:
    inner = "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
    assert to_markdown(f"<table>{rows.replace('{}', inner)}</table>", URL).text == text


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("<title>a\n b</title><title>c</title>", "a b"),
        ("<title> </title><title>c</title>", "c"),
        (f"<title>{'x' * (MAX_TITLE + 1)}</title>", "x" * MAX_TITLE),
        ("<body><svg><title>of a picture</title></svg>", ""),
    ],
)
def test_a_pages_title(source: str, title: str) -> None:
    assert to_markdown(source, URL).title == title
