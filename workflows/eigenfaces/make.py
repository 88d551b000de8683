"""Faces, drawn by a formula: some people, each with some expressions, each lit from some sides.

    python -m workflows.eigenfaces.make DIRECTORY

A face is an ellipsoid with hair, brows, eyes, a nose and a mouth; light falls on it from a side, as Lambert's law says.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import zarr

ROWS, COLUMNS = 112, 92
PEOPLE, LIGHTS = 8, 10
EXPRESSIONS = {  # how far corners of the mouth are up, the mouth is open, brows are up
    "neutral": (0.0, 0.2, 0.0),
    "smiling": (0.10, 0.4, 0.02),
    "sad": (-0.08, 0.2, 0.03),
    "angry": (-0.05, 0.3, -0.05),
    "surprised": (0.0, 1.6, 0.09),
}
NOISE = 4.0  # grey values


def soft(distance: np.ndarray, width: float = 0.02) -> np.ndarray:
    """1 where the distance to an edge is negative, 0 where it is positive, without steps."""
    return 1 / (1 + np.exp(np.clip(distance / width, -30, 30)))


def ellipse(x: np.ndarray, y: np.ndarray, width: float, height: float) -> np.ndarray:
    """1 within an ellipse about 0."""
    return soft((np.hypot(x / width, y / height) - 1) * min(width, height))


def person(rng: np.random.Generator) -> dict[str, float]:
    """What tells one person from others, in half widths of a picture."""
    ranges = {
        "skin": (0.55, 0.95),
        "hair": (0.05, 0.45),
        "hairline": (-0.80, -0.45),
        "width": (0.62, 0.80),
        "height": (0.92, 1.10),
        "apart": (0.24, 0.34),
        "eyes": (0.09, 0.14),
        "brows": (0.02, 0.05),
        "nose": (0.28, 0.42),
        "mouth": (0.18, 0.30),
        "chin": (0.50, 0.62),
    }
    return {name: rng.uniform(*between) for name, between in ranges.items()}


def face(of: dict[str, float], expression: tuple[float, float, float], light: float) -> np.ndarray:
    """A picture (ROWS, COLUMNS) in grey values; light is the angle from which it comes, 0 for the front."""
    corners, opened, raised = expression
    y, x = np.meshgrid(np.linspace(-1.2, 1.2, ROWS), np.linspace(-1, 1, COLUMNS), indexing="ij")
    head = ellipse(x, y, of["width"], of["height"])
    depth = np.sqrt(np.clip(1 - (x / of["width"]) ** 2 - (y / of["height"]) ** 2, 0, 1))
    sides = x / of["width"] * np.sin(light) + depth * np.cos(light)
    skin = of["skin"] * np.ones_like(x)
    hair = soft(y - of["hairline"] - 0.25 * x**2) * ellipse(x, y + 0.05, of["width"] + 0.05, of["height"] + 0.03)
    for side in (-1, 1):
        eye_x, eye_y = x - side * of["apart"], y + 0.18
        brow = ellipse(eye_x, eye_y + 0.17 + raised + 0.6 * side * eye_x * raised, 0.16, of["brows"])
        skin = skin * (1 - 0.75 * brow)
        white = ellipse(eye_x, eye_y, of["eyes"] + 0.03, of["eyes"] * (0.55 + 2 * max(raised, 0)))
        skin = skin * (1 - white) + 0.95 * white
        skin = skin * (1 - 0.9 * ellipse(eye_x, eye_y, 0.045, 0.05) * white)
    nose = ellipse(x, y - 0.02, 0.06, of["nose"] / 2)
    skin = skin * (1 + 0.25 * nose * (np.cos(light) + 3 * x * np.sin(light)))
    skin = skin * (1 - 0.4 * ellipse(x, y - of["nose"] / 2 - 0.02, 0.09, 0.03))
    lips = y - of["chin"] + corners * (x / of["mouth"]) ** 2
    skin = skin * (1 - 0.6 * ellipse(x, lips, of["mouth"] * (1 - 0.1 * opened), 0.03 + 0.07 * opened))
    picture = skin * head * (1 - hair) + of["hair"] * hair
    return 255 * (0.25 * (1 - np.maximum(head, hair)) + picture * (0.25 + 0.75 * np.clip(sides, 0, 1)))


def make(directory: Path, seed: int = 0) -> None:
    """Write faces.zarr (pictures, pixels) uint8, flattened, and pictures.csv with a row for each: who, how, light."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"p{who:02}-{name}-{number}", f"p{who:02}", name, angle)
        for who in range(PEOPLE)
        for name in EXPRESSIONS
        for number, angle in enumerate(np.linspace(-60, 60, LIGHTS).round().astype(int))
    ]
    people = {f"p{who:02}": person(rng) for who in range(PEOPLE)}
    faces = np.array([face(people[who], EXPRESSIONS[name], np.deg2rad(angle)) for _, who, name, angle in rows])
    faces += rng.normal(scale=NOISE, size=faces.shape)
    flat = np.clip(faces.round(), 0, 255).astype("u1").reshape(len(rows), -1)
    zarr.create_array(str(directory / "faces.zarr"), data=flat, chunks=(len(rows), 1288), overwrite=True)
    with open(directory / "pictures.csv", "w", newline="") as file:
        csv.writer(file).writerows([("picture", "person", "expression", "light"), *rows])


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    make(given.directory)


if __name__ == "__main__":
    main()
