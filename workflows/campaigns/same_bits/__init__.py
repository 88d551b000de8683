"""What some fifty cases make by another commit's code and by that of the working tree, byte by byte.

    python -m workflows.campaigns.same_bits --base COMMIT [--only CASE] [--keep DIRECTORY]

For changes that must not change a digit or a word. Cases use what users use: the command line, `dpca.PCA`, `dpca.KernelPCA` and
`dpca.open_gram`, so that modules may go anywhere. Each is carried out twice in folders of its own, by processes that find one code
or the other, from data that are made once. Compared are all arrays, what Zarr says of them, certificates, exported files, and texts:
reports, plans, help, and what is said of settings that can't be. What a machine measures is left out of these. Not compared is what
tells of the way there (`manifest.json`, `status.json`). A case that is not what it is for any more (of a run that should go on to
another solver, and does not), or fails, or leaves nothing to compare, has failed, also where both codes agree.
"""
