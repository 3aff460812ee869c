// The process that holds copies of a job's training state in memory, one per host, outside of the
// job's mpirun: ranks store files here (zero/checkpoint/keeper_messages.h), the keeper sends these
// to the next host's keeper (keeper_peers.h), and gives the newest complete copy to the ranks at a
// restart. Ends with standard input, which the parent holds open (keeper_process.h).
//
// Lines on standard output, fields separated by blanks:
//   port PORT TOKEN ANSWER    ready; for the peers. PORT is 0 if none are accepted
//   newest STEP               the newest complete copy, after "newest"; -1: none
// Lines on standard input:
//   peers GENERATION NEXT {HOST PORT TOKEN ANSWER}    all other keepers that answer; NEXT is the
//        number of the keeper that gets copies of this host's files, -1: none. From then on, only
//        ranks of this generation and later ones are served
//   newest
#pragma once

#include <string>

namespace zero::tool {

// Serves until the input ends, then ends the process. has_peers: more hosts have keepers, so TCP
// connections are accepted. Throws TopologyError if the start fails.
void run_keeper(const std::string& job, bool has_peers);

}  // namespace zero::tool
