"""Augmentation of whole batches."""

import pytest
import torch
from torch import Tensor

from remanence.core.rng import torch_generator
from remanence.data.augment import augmentation, crop, cutout, flip
from remanence.errors import UserError


def images(count: int = 12, channels: int = 3, height: int = 10, width: int = 8) -> Tensor:
    """Every value different and none zero, stored channels last."""
    x = torch.arange(1.0, count * channels * height * width + 1).view(count, channels, height, width)
    return x.to(memory_format=torch.channels_last)


def draws(seed: int = 0) -> torch.Generator:
    return torch_generator(seed, "augment")


ALL = {
    "crop": lambda x, generator: crop(x, 2, generator),
    "reflect": lambda x, generator: crop(x, 2, generator, mode="reflect"),
    "flip": flip,
    "cutout": lambda x, generator: cutout(x, 4, generator),
}


@pytest.mark.parametrize("change", ALL.values(), ids=ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_shape_layout_input_and_reproducibility(change, channels, layout) -> None:
    x = images(40, channels).contiguous(memory_format=layout)
    before = x.clone()
    y = change(x, draws())
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, before)
    assert y.data_ptr() != x.data_ptr()
    assert torch.equal(y, change(x, draws()))
    assert not torch.equal(y, change(x, draws(1)))


@pytest.mark.parametrize("change", ALL.values(), ids=ALL)
def test_same_result_whatever_the_layout(change) -> None:
    x = images()
    assert torch.equal(change(x, draws()), change(x.contiguous(), draws()))


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_crop_is_a_window_of_the_padded_image(mode: str) -> None:
    x, padding = images(60), 3
    padded = torch.nn.functional.pad(x.contiguous(), (padding,) * 4, mode=mode)
    seen = set()
    for image, around in zip(crop(x, padding, draws(), mode=mode), padded, strict=True):
        matches = [
            (top, left)
            for top in range(2 * padding + 1)
            for left in range(2 * padding + 1)
            if torch.equal(image, around[:, top : top + 10, left : left + 8])
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 25  # of 49 places
    assert {top for top, _ in seen} == {left for _, left in seen} == set(range(2 * padding + 1))


def test_crop_without_padding_changes_nothing() -> None:
    assert torch.equal(crop(images(), 0, draws()), images())


def test_flip_mirrors_about_half_of_the_images() -> None:
    x = images(2000, 1, 2, 4)
    y = flip(x, draws())
    mirrored = (y == x.flip(3)).flatten(1).all(1)
    kept = (y == x).flatten(1).all(1)
    assert (mirrored ^ kept).all()
    assert 930 <= int(mirrored.sum()) <= 1070


def test_flip_of_an_empty_and_of_a_single_image() -> None:
    assert flip(images(0), draws()).shape == (0, 3, 10, 8)
    results = {tuple(flip(images(1, 1, 1, 2), draws(seed)).flatten().tolist()) for seed in range(20)}
    assert results == {(1.0, 2.0), (2.0, 1.0)}


@pytest.mark.parametrize("size", [4, 5])
def test_cutout_is_a_clipped_square_of_zeros(size: int) -> None:
    x = images(400, 3, 12, 12) * -1
    y = cutout(x, size, draws())
    centres = set()
    for image, original in zip(y, x, strict=True):
        hole = image[0] == 0
        assert torch.equal(image == 0, hole.expand(3, 12, 12))
        assert torch.equal(image[:, ~hole], original[:, ~hole])
        rows, columns = hole.any(1).nonzero().view(-1), hole.any(0).nonzero().view(-1)
        assert int(hole.sum()) == len(rows) * len(columns)
        assert int(rows[-1] - rows[0]) == len(rows) - 1
        for span in (rows, columns):
            inside = int(span[0]) > 0 and int(span[-1]) < 11
            assert len(span) == size if inside else size // 2 <= len(span) <= size
        centres.add((int(rows[0]), int(rows[-1])))
    assert len(centres) == 12  # every row can be the centre


def test_cutout_of_16_has_the_expected_area_on_32() -> None:
    """Along one side: 16 for 17 of 32 centres, 8..15 at one border, 9..15 at the other."""
    expected = (17 * 16 + sum(range(8, 16)) + sum(range(9, 16))) / 32
    y = cutout(torch.ones(4000, 1, 32, 32), 16, draws())
    assert float((y == 0).sum()) / 4000 == pytest.approx(expected**2, rel=0.02)


def test_recipes_are_their_pieces_in_order() -> None:
    x = images(20, 3, 32, 32)
    generator = draws()
    standard = flip(crop(x, 4, generator), generator)
    assert torch.equal(augmentation("standard", (3, 32, 32))(x, draws()), standard)
    assert torch.equal(augmentation("fedntd", (3, 32, 32))(x, draws()), cutout(standard, 16, generator))


def test_large_images_have_their_own_fedntd_recipe() -> None:
    x = images(20, 3, 64, 64)
    generator = draws()
    expected = flip(crop(x, 8, generator, mode="reflect"), generator)
    y = augmentation("fedntd", (3, 64, 64))(x, draws())
    assert torch.equal(y, expected)
    assert float(y.min()) > 0  # neither zero padding nor holes


def test_fedntd_flips_and_cuts_grey_images_of_28_too() -> None:
    y = augmentation("fedntd", (1, 28, 28))(images(50, 1, 28, 28), draws())
    assert y.shape == (50, 1, 28, 28)
    assert ((y == 0).flatten(1).sum(1) >= 64).all()


def test_none_is_nothing_whatever_the_samples() -> None:
    assert augmentation("none", (3, 32, 32)) is None
    assert augmentation("none", (17,)) is None


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("standrd", (3, 32, 32), "unknown augmentation 'standrd'; did you mean 'standard'"),
        ("standard", (17,), r"'standard' is for images .* shape \(17,\); use 'none'"),
        ("fedntd", (6, 100), r"'fedntd' is for images"),
        ("fedntd", (1, 8, 8), "cuts 16x16 holes, the images here are 8x8"),
    ],
)
def test_errors_name_the_key(name, shape, words) -> None:
    with pytest.raises(UserError, match=rf"^data\.augment: .*{words}"):
        augmentation(name, shape)


def test_the_border_of_a_crop_is_black_after_normalisation() -> None:
    """Mean grey would be 0; a border that was added before normalising is -mean / std."""
    recipe = augmentation("standard", (1, 28, 28), (-0.5,))
    assert recipe is not None
    moved = recipe(torch.ones(64, 1, 28, 28), draws())
    assert set(moved.unique().tolist()) == {-0.5, 1.0}
