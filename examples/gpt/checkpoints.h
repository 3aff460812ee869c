// When train_gpt saves, and what it resumes from: --checkpoint, --resume, --save-every, --keep,
// --overwrite-later.
#pragma once

#include <cstdint>
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
  // later checkpoints would be in this run's way.
  bool resume();
  // After each step: saves every --save-every steps, and after the last.
  void after_step(bool last);

 private:
  void clear_later_than(std::int64_t sequence, const std::string& instead) const;

  zero::Runtime& runtime_;
  zero::Engine& engine_;
  const Options& options_;
  std::string data_;
};

}  // namespace gpt
