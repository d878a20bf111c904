"""Run the module `peer` on the path: imported, so that its tasks are named as in its workers."""

import peer
from bench_peer import main

if __name__ == "__main__":  # a process that a peer spawns imports this file again
    main(peer.PEER)
