// A contestant's side of turns.py: the ranks of several programs stay resident, and each works only
// when it gets an order. A waiting rank sleeps in read(), outside of any collective, so that the
// others have the machine to themselves.
#pragma once

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

namespace zero::bench {

class Turns {
 public:
  // Opens the directory's pipes: RANK.in carries orders, RANK.out answers.
  Turns(const std::string& directory, int rank)
      : orders_(directory + "/" + std::to_string(rank) + ".in"),
        answers_(directory + "/" + std::to_string(rank) + ".out") {}

  // Takes turns until there are no more: calls step() as often as each order demands, and reports
  // its result with the seconds of a turn: a loss, or several figures separated by commas.
  template <class Step>
  void serve(Step step) {
    answers_ << "ready " << getpid() << std::endl;
    for (int count = 0; orders_ >> count;) {
      const auto start = std::chrono::steady_clock::now();
      decltype(step()) note{};
      for (int i = 0; i < count; ++i) note = step();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      answers_.precision(17);
      answers_ << seconds.count() << ' ' << note << std::endl;
    }
  }

 private:
  std::ifstream orders_;
  std::ofstream answers_;
};

}  // namespace zero::bench
