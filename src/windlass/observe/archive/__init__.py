"""The archive: what is left of dead letters when they are removed.

Before a dead letter is discarded, or pruned because its time is over, its trace is written: which job it was,
what it was called with (secrets and private values masked), what it died of, and who removed it and why.
A process that is killed between the two repeats both, so an entry may be there twice, under the same id.

    entry.py       what is kept of a dead letter
    archive.py     the protocol of what keeps it, and which one a URL names
    file.py        JSON lines, in files that rotate
    objects.py     objects of JSON lines in object storage
    database.py    a table beside the history
    removing.py    first the trace, then the removal
"""
