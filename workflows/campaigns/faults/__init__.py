"""A campaign of faults: every command of dpca, disturbed in every way at a random moment, and what came of it.

    python -m workflows.campaigns.faults --seed 0 --runs 1000
    python -m workflows.campaigns.faults --seed 0 --only 17
    python -m workflows.campaigns.faults --every-file 4

A run of the campaign is a cell of two tables: a command on small data (`subjects.SUBJECTS`), and what happens to it (`FAULTS`). All cells
come in turn, in an order that the seed draws. Moments, writes, files and bits are drawn from the seed and the number of the run, so
`--only` repeats one; moments in time depend on the machine, so that may take a few repetitions.

Whatever happened, the command that its user gives next ends in the bits of a run that was never disturbed ("same bits"). Only while a
file is damaged may it refuse in a sentence, and must go on once the file is as it was ("refused"). "Lost" is a process that hangs or ends
in a traceback or a defect, work that can't be gone on with, or a file that was only to be read and is another. "Falsified" are other bits.

With `--every-file` nothing is drawn: each command is killed at so many moments, and each kind of file that it leaves is cut, removed, and
has a bit flipped, one at a time, before its user goes on.
"""
