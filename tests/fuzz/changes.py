"""Random harm to a file's bytes."""

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
