"""Components as NIfTI, to be laid over a brain by FSLeyes, Freeview or nilearn.

python -m workflows.brains.to_nifti RESULT MASK.h5 DIRECTORY
"""

import sys
from pathlib import Path

import h5py
import nibabel as nib
import numpy as np
import xarray as xr


def write(result: xr.Dataset, affine: np.ndarray, directory: Path) -> None:
    """Write components_0.nii.gz and so on (x, y, z) in float32, 0 outside of the mask; affine (4, 4) is in mm."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, component in enumerate(result["components"]):
        image = nib.Nifti1Image(np.nan_to_num(component.values), affine)
        image.header.set_xyzt_units("mm")
        nib.save(image, directory / f"components_{number}.nii.gz")


if __name__ == "__main__":
    place, mask, target = sys.argv[1:]
    with h5py.File(mask) as beside:
        write(xr.open_zarr(f"{place}/result.zarr"), beside["mask"].attrs["affine"], Path(target))
