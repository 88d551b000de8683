"""Where land is: outlines of continents and large islands, drawn by hand, good enough for a grid of two degrees."""

import numpy as np

OUTLINES = """
-6 36, 10 37, 11 33, 20 31, 32 31, 35 28, 43 12, 51 12, 40 -3, 40 -15, 35 -20, 32 -28, 26 -34, 18 -34, 12 -18, 13 -6, 9 4, -8 5,
-17 14, -16 24

-9 37, -9 43, -1 44, -4 48, 3 51, 8 54, 5 59, 5 62, 14 68, 25 71, 40 67, 68 69, 73 72, 105 77, 113 74, 140 73, 160 70, 180 69,
190 66, 178 62, 163 60, 157 51, 155 59, 143 59, 135 54, 140 48, 131 43, 128 35, 126 35, 125 40, 118 39, 122 31, 117 24, 108 21,
109 12, 105 9, 100 13, 104 1, 98 9, 97 16, 92 22, 86 20, 80 15, 78 8, 73 18, 67 25, 57 26, 50 30, 52 24, 59 22, 52 15, 45 13,
35 28, 35 36, 27 37, 22 37, 20 40, 13 45, 18 40, 16 38, 9 44, 3 43, 0 39, -5 36

-168 66, -156 71, -128 70, -95 72, -82 68, -94 60, -82 55, -79 52, -78 62, -64 59, -56 52, -66 49, -61 46, -70 43, -76 36,
-81 31, -80 25, -84 30, -97 28, -97 20, -92 18, -87 21, -88 16, -83 15, -82 9, -78 9, -80 7, -86 11, -95 15, -106 21, -112 30,
-114 30, -110 23, -117 33, -124 40, -124 48, -134 58, -150 60, -163 54, -158 59, -165 62

-78 9, -72 12, -62 10, -50 1, -35 -5, -39 -15, -42 -23, -48 -27, -57 -37, -65 -43, -68 -55, -75 -50, -73 -38, -70 -20, -76 -14,
-81 -5, -78 2

114 -22, 122 -18, 129 -15, 136 -12, 137 -16, 141 -17, 142 -11, 146 -19, 153 -26, 150 -37, 144 -39, 138 -35, 131 -31, 124 -33,
115 -35

-125 72, -115 77, -90 81, -65 83, -76 77, -80 73, -62 66, -78 65, -95 69

-73 78, -60 82, -30 83, -20 76, -24 70, -42 60, -52 65, -55 72

-24 66, -14 66, -18 63

-6 50, 2 51, -1 55, -3 59, -7 57

130 31, 141 35, 146 43, 141 46, 139 38, 131 35

95 6, 98 5, 106 -3, 106 -6, 102 -5

109 2, 113 3, 117 7, 119 5, 117 0, 115 -4, 110 -3

131 0, 138 -2, 146 -5, 151 -10, 143 -9, 138 -8, 134 -4

120 19, 123 18, 127 7, 122 7, 119 14

172 -34, 179 -38, 174 -43, 168 -48, 166 -45, 173 -40

43 -17, 50 -12, 50 -16, 47 -26, 43 -24
"""
"""Degrees east and north of the corners of each."""

ANTARCTICA = -72
"""Land is all that is south of it."""


def is_land(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Whether a point is on land, (latitude, longitude): within an outline, whose sides it then crosses an odd number of times."""
    y, x = np.meshgrid(latitude, longitude, indexing="ij")
    land = y < ANTARCTICA
    for outline in OUTLINES.split("\n\n"):
        east, north = np.array([corner.split() for corner in outline.split(",")], float).T
        near = (x - east.mean() + 180) % 360 - 180 + east.mean()
        within = np.zeros_like(land)
        for east_a, north_a, east_b, north_b in zip(east, north, np.roll(east, 1), np.roll(north, 1), strict=True):
            if north_a != north_b:
                crossing = east_a + (y - north_a) * (east_b - east_a) / (north_b - north_a)
                within ^= ((north_a > y) != (north_b > y)) & (near < crossing)
        land |= within
    return land
