"""Large values in object storage: payloads and results that are too large for the store.

    p/<namespace>/<job>            a payload; put before the job is enqueued
    r/<namespace>/<job>/<fence>    a result; put before it is settled
    r/<namespace>/<job>/kept       which of them was the result, once the job's record may go before it
    o/<namespace>                  of which store these are

The store keeps a reference in the place of each: its size and its hash, and nothing of where it is. The name
of an object follows from the job that is read, so a reference that somebody has forged leads to no object of
another job. Objects are put create-only and never changed. What is put and then not needed (a process that
died in between, a stale worker, a call that met an earlier one) is swept later.

    names.py      the names of objects
    place.py      which object storage a URL names
    bucket.py     the calls to object storage, and their errors
    values.py     what is put there, and reading it again
    configured.py what of this an app has
    orphans.py    which objects are of no use any more
"""
