"""Random harm to a file's bytes, and what an error about it must be like."""

from hypothesis import strategies as st

Change = tuple[str, float, int]  # what, where (a share of the length), with which byte

changes = st.tuples(
    st.sampled_from(["flip", "set", "cut", "drop", "insert", "double", "zeros"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 255),
)


def changed(content: bytes, change: Change) -> bytes:
    kind, share, byte = change
    place = int(share * len(content))
    before, after = content[:place], content[place + 1 :]
    if kind == "flip":
        return before + bytes([content[place] ^ (1 << byte % 8)]) + after
    if kind == "set":
        return before + bytes([byte]) + after
    if kind == "cut":
        return before
    if kind == "drop":
        return before + after
    if kind == "insert":
        return before + bytes([byte]) + content[place:]
    if kind == "double":
        return before + content[place:] + content[place:]
    return before + bytes(min(byte, len(content) - place)) + content[place + byte :]


def well_said(error: Exception, *words: str, most_lines: int = 1, longest: int = 300) -> None:
    """Short, in few lines, and with all the words."""
    text = str(error)
    assert 1 <= len(text.splitlines()) <= most_lines, text
    assert 0 < len(text) <= longest
    assert all(word in text for word in words)
