"""Maps of grey matter of 120 people, an image of NIfTI each: the older, the less of it in one region.

    python -m workflows.brains.make DIRECTORY

Made by a formula, in voxels of 4 mm. What is outside of the brain is noise, as scanners write it.
"""

import argparse
import csv
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy.ndimage import gaussian_filter

SHAPE, VOXEL_MM = (40, 48, 40), 4.0
PEOPLE = 120
LOSS = 0.12  # of grey matter where most is lost, from a standard deviation of age
OTHERS, NOISE = 0.04, 0.05  # patterns that have nothing to do with age, and what no one shares


def affine(shape: tuple[int, int, int]) -> np.ndarray:
    """From voxels to millimetres, RAS, with 0 in the middle of the brain."""
    matrix = np.diag([VOXEL_MM, VOXEL_MM, VOXEL_MM, 1.0])
    matrix[:3, 3] = [-VOXEL_MM * (length - 1) / 2 for length in shape]
    return matrix


def anatomy(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mask, mean grey matter, and where age takes it, as (x, y, z), the last with 1 at most."""
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, length) for length in shape), indexing="ij")
    radius = np.sqrt((x / 0.85) ** 2 + (y / 0.92) ** 2 + (z / 0.85) ** 2)
    mask = radius < 1
    folds = 0.06 * (np.sin(11 * x) * np.sin(13 * y) + np.sin(12 * z) * np.cos(10 * y))
    cortex = np.exp(-(((radius - 0.88 + folds) / 0.12) ** 2))
    cleft = 1 - np.exp(-((x / 0.04) ** 2))
    nuclei = sum(np.exp(-(((x - s * 0.2) / 0.1) ** 2) - ((y / 0.2) ** 2) - ((z / 0.15) ** 2)) for s in (-1, 1))
    temporal = sum(
        np.exp(-(((x - s * 0.42) / 0.16) ** 2) - (((y - 0.1) / 0.28) ** 2) - (((z + 0.35) / 0.16) ** 2))
        for s in (-1, 1)
    )
    frontal = np.exp(-((x / 0.35) ** 2) - (((y - 0.75) / 0.2) ** 2) - (((z - 0.1) / 0.3) ** 2))
    grey = 0.15 + 0.65 * np.clip(cortex * cleft + nuclei + 0.7 * temporal, 0, 1)
    lost = temporal + 0.6 * frontal
    return mask, grey, lost / lost.max()


def smooth(rng: np.random.Generator, shape: tuple[int, int, int], voxels: float) -> np.ndarray:
    """Noise of standard deviation 1 that neighbours share."""
    noise = gaussian_filter(rng.standard_normal(shape), voxels)
    return noise / noise.std()


def make(directory: Path, people: int = PEOPLE, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> None:
    """Write sub-001.nii and so on, brain_mask.nii.gz, and participants.tsv, whose rows are in another order."""
    rng = np.random.default_rng(seed)
    mask, grey, lost = anatomy(shape)
    others = [smooth(rng, shape, shape[0] / 8) for _ in range(2)]
    ages = rng.uniform(20, 85, people).round(1)
    rows = []
    for number, age in enumerate(ages, start=1):
        name = f"sub-{number:03}"
        rows.append((name, age, "FM"[number % 2]))
        values = grey - LOSS * (age - ages.mean()) / ages.std() * lost
        values = values + OTHERS * sum(rng.standard_normal() * pattern for pattern in others)
        values = values + NOISE * smooth(rng, shape, 0.7)
        values = np.where(mask, values, rng.exponential(0.02, shape))
        write(directory / f"{name}.nii", values.astype("f4"))
    write(directory / "brain_mask.nii.gz", mask.astype("u1"))
    with open(directory / "participants.tsv", "w", newline="") as file:
        shuffled = [rows[index] for index in rng.permutation(people)]
        csv.writer(file, delimiter="\t").writerows([("participant_id", "age", "sex"), *shuffled])


def write(path: Path, values: np.ndarray) -> None:
    """Write an image (x, y, z)."""
    image = nib.Nifti1Image(values, affine(values.shape))
    image.header.set_xyzt_units("mm")
    nib.save(image, path)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory)


if __name__ == "__main__":
    main()
