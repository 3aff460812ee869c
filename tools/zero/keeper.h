// The process that holds copies of a job's training state in memory, one per host, outside of the
// job's mpirun: ranks fill it (zero/checkpoint/keeper_messages.h), it sends their files to the next
// host's keeper (keeper_peers.h), and at a restart it gives the newest complete copy to the ranks.
// It ends with its standard input, which its parent holds open (keeper_process.h).
//
// Lines on its standard output, fields separated by blanks:
//   port PORT TOKEN ANSWER    ready; for its peers. PORT is 0 if it accepts none
//   newest STEP               the newest complete copy, after "newest"; -1: there is none
// Lines on its standard input:
//   peers GENERATION NEXT {HOST PORT TOKEN ANSWER}    all other keepers that answer; NEXT is the
//        number of the one that gets copies of this host's files, -1: none. From then on, only
//        ranks of this generation and later ones are served
//   newest
#pragma once

#include <string>

namespace zero::tool {

// Serves until the input ends, and ends the process then. has_peers: other hosts have keepers, so
// it listens to TCP connections. Throws TopologyError if it cannot start.
void run_keeper(const std::string& job, bool has_peers);

}  // namespace zero::tool
