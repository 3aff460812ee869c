// When train_gpt saves, and what it resumes from: --checkpoint, --resume, --save-every,
// --save-minutes, --keep, --overwrite-later.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "examples/gpt/options.h"
#include "zero/zero.h"

namespace gpt {

class Checkpoints {
 public:
  // `data`: what the samples are drawn from; a run that is resumed with others is told so.
  Checkpoints(zero::Runtime& runtime, zero::Engine& engine, const Options& options,
              std::string data);

  // Loads what --resume asks for; false where the run starts from nothing. Throws ConfigError where
  // later checkpoints would be in this run's way, SaveError where this run could not save.
  bool resume();
  // After each step: saves when one is due, after the last step, and when a signal asked the run
  // to stop and there is time for it. True where a checkpoint of this very step is on disk.
  bool after_step(bool last, bool stop);
  // Whether it is known beforehand that this step's result will be saved, also as a model.
  bool planned_after(std::int64_t step) const;
  // Of the last one committed; empty: none.
  const std::string& last_tag() const { return last_tag_; }

 private:
  bool load();
  bool is_due();
  bool in_time() const;
  void save(bool wait);
  bool settle();
  void clear_later_than(std::int64_t sequence, const std::string& instead) const;

  zero::Runtime& runtime_;
  zero::Engine& engine_;
  const Options& options_;
  std::string data_;
  std::chrono::steady_clock::time_point last_begun_;
  std::optional<zero::SaveTicket> pending_;
  std::string pending_tag_, last_tag_;
};

}  // namespace gpt
