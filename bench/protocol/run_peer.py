"""Run the module `peer` on the path: imported, so that its tasks are named as in its workers."""

import peer
from bench_peer import main

main(peer.PEER)
