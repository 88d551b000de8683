"""Pictures: what Pillow and tifffile read, and maps that come back as pictures."""

from pathlib import Path

import numpy as np
import pytest

from dpca.errors import DataError, InputError
from dpca.sources import open_source
from tests.commands.calls import dpca
from tests.sources.test_zarr_array import whole

Image = pytest.importorskip("PIL.Image")
tifffile = pytest.importorskip("tifffile")

GREY = np.random.default_rng(0).integers(0, 255, (9, 6, 5)).astype("u1")


@pytest.mark.parametrize(
    ("mode", "dtype", "colours"),
    [
        ("L", "u1", None),
        ("1", "?", None),
        ("I;16", "u2", None),
        ("RGB", "u1", 3),
        ("RGBA", "u1", 4),
        ("P", "u1", 3),
        ("CMYK", "u1", 3),
    ],
)
def test_values_are_those_of_the_picture_and_palettes_become_colours(mode, dtype, colours):
    picture = (
        Image.fromarray(GREY[0]).convert("RGB").convert(mode)
        if mode != "I;16"
        else Image.fromarray(GREY[0].astype("u2") * 200)
    )
    path = "x.tif" if mode == "CMYK" else "x.png"
    if mode == "CMYK":
        path = "x.jpg"
    picture.save(path)
    source = open_source(path)
    shown = Image.open(path)
    expected = np.asarray(shown.convert("RGB") if mode in ("P", "CMYK") else shown)
    assert source.layout.dtype == dtype
    assert source.layout.shape == (1, 6, 5, *([colours] if colours else []))
    np.testing.assert_array_equal(whole(source)[0][0], expected)


def test_components_and_means_come_back_as_pictures(capsys):
    Path("faces").mkdir()
    for number, one in enumerate(GREY):
        Image.fromarray(one).save(f"faces/{number}.png")
    Path("c.yaml").write_text("input: {uri: faces}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n")
    assert not dpca("run", "c.yaml")
    assert not dpca("export", "r", "--to", "png")
    assert capsys.readouterr().out.split()[-3:] == ["r-components_1.png", "r-components_2.png", "r-mean.png"]
    x = GREY.reshape(9, -1).astype("f8")
    v = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2]
    first = np.asarray(Image.open("r-components_1.png"), float).ravel() - 127.5
    assert abs(np.corrcoef(first, v[0])[0, 1]) > 0.999
    assert np.abs(first).max() >= 127
    mean = np.asarray(Image.open("r-mean.png"), float).ravel()
    assert (mean.min(), mean.max()) == (0, 255)
    assert np.corrcoef(mean, x.mean(axis=0))[0, 1] > 0.999


def test_a_result_of_other_features_is_not_exported_as_pictures(capsys):
    np.save("x.npy", GREY.reshape(9, -1).astype("f4"))
    Path("c.yaml").write_text("input: {uri: x.npy}\nmodel: {n_components: 2}\noutput: {path: r, report: false}\n")
    assert not dpca("run", "c.yaml")
    assert dpca("export", "r", "--to", "png") == 2
    assert "has no maps of two axes, which png is for" in capsys.readouterr().err


def test_pages_of_another_shape_and_pictures_of_many_channels_are_refused():
    with tifffile.TiffWriter("x.tif") as file:
        file.write(GREY[0])
        file.write(GREY[1][:4])
    with pytest.raises(DataError, match=r"x\.tif: picture 1 has shape \(4, 5\)"):
        whole(open_source("x.tif"))
    with tifffile.TiffWriter("y.tif") as file:
        file.write(GREY[0])
        file.write(GREY[1].astype("u2") + 300, contiguous=False)
    with pytest.raises(DataError, match=r"y\.tif: picture 1 has .* dtype uint16, but the first has .* uint8"):
        whole(open_source("y.tif"))
    frames = [Image.fromarray(one) for one in GREY[:3]]
    frames[0].save("moving.png", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match=r"moving\.png: can't be read as a picture: it has 3 frames"):
        open_source("moving.png")
    tifffile.imwrite("many.tif", np.zeros((6, 5, 9), "u1"), photometric="minisblack", planarconfig="contig")
    with pytest.raises(InputError, match=r"many\.tif: has pictures of shape \(6, 5, 9\)"):
        open_source("many.tif")
