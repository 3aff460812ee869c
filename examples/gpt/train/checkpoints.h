// Decides when train_gpt saves and resumes: --checkpoint, --resume, --save-every, --save-minutes,
// --keep, --overwrite-later.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "examples/gpt/train/options.h"
#include "zero/zero.h"

namespace gpt {

class Checkpoints {
 public:
  // `data`: the source of the samples. A run that is resumed with another source prints a notice.
  Checkpoints(zero::Runtime& runtime, zero::Engine& engine, const Options& options,
              std::string data);

  // Loads the checkpoint that --resume selects; false if the training run starts from nothing.
  // Throws ConfigError if later checkpoints would collide with this run's, SaveError if this run
  // could not save.
  bool resume();
  // Called after each step. Saves when a save is due, after the last step, and when a signal
  // stopped the run, if there is time left; otherwise begins a copy in memory if due. True if a
  // checkpoint of this very step is on disk.
  bool after_step(bool last, bool stop);
  // Returns whether it is known beforehand that this step's result will be saved, also as a model.
  bool planned_after(std::int64_t step) const;
  // Tag of the last committed checkpoint, empty if there is none.
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
