#include "examples/gpt/train/checkpoints.h"

#include <cstdio>
#include <utility>

namespace gpt {
namespace {

constexpr const char* data_key = "data";

}  // namespace

Checkpoints::Checkpoints(zero::Runtime& runtime, zero::Engine& engine, const Options& options,
                         std::string data)
    : runtime_(runtime), engine_(engine), options_(options), data_(std::move(data)) {
  last_begun_ = std::chrono::steady_clock::now();
}

// Only the root looks, since its failure ends every rank.
void Checkpoints::clear_later_than(std::int64_t sequence, const std::string& instead) const {
  if (!runtime_.is_root()) return;
  const std::string& directory = options_.checkpoint_directory;
  if (options_.overwrite_later) {
    for (const std::string& moved : zero::set_aside_checkpoints(directory, sequence))
      std::printf("checkpoint: moved %s\n", moved.c_str());
    return;
  }
  const std::vector<zero::SavedCheckpoint> saved = zero::list_checkpoints(directory);
  if (!saved.empty() && saved.front().sequence > sequence)
    throw zero::ConfigError("--resume " + options_.resume + ": " + directory + " holds " +
                            saved.front().tag + ", saved later" + instead +
                            "; --overwrite-later moves such checkpoints aside");
}

bool Checkpoints::resume() {
  const std::string& directory = options_.checkpoint_directory;
  if (directory.empty()) return false;
  const bool resumed = load();
  // Errors that would stop the first save end the training run before the first step.
  engine_.open_checkpoints(directory);
  return resumed;
}

bool Checkpoints::load() {
  const std::string& directory = options_.checkpoint_directory;
  if (options_.resume == "none") {
    clear_later_than(-1, "; --resume auto goes on from there");
    return false;
  }
  const bool newest = options_.resume == "auto";
  const auto resumed =
      engine_.resume(directory, newest ? zero::Resume::if_any : zero::Resume::must_exist,
                     newest ? "" : options_.resume);
  if (!resumed) {
    if (runtime_.is_root())
      std::printf("no checkpoint in %s: starting from step 0\n", directory.c_str());
    return false;
  }
  if (!newest && runtime_.is_root())
    for (const zero::SavedCheckpoint& saved : zero::list_checkpoints(directory))
      if (saved.tag == resumed->tag) clear_later_than(saved.sequence, "");
  if (!runtime_.is_root()) return true;
  std::printf("resumed  %s/%s after step %lld\n", directory.c_str(), resumed->tag.c_str(),
              static_cast<long long>(resumed->step));
  const auto data = resumed->client_state.find(data_key);
  if (data != resumed->client_state.end() && data->second != data_)
    std::printf("note: it was trained on %s\n", data->second.c_str());
  return true;
}

bool Checkpoints::planned_after(std::int64_t step) const {
  const bool saves = !options_.checkpoint_directory.empty();
  if (step == options_.steps) return saves || !options_.save_directory.empty();
  return saves && options_.save_every > 0 && step % options_.save_every == 0;
}

bool Checkpoints::is_due() {
  if (options_.save_every > 0 && engine_.step_count() % options_.save_every == 0) return true;
  if (options_.save_minutes <= 0) return false;
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - last_begun_;
  // Rank 0's clock decides for all ranks.
  const bool due = runtime_.is_root() && age.count() >= 60 * options_.save_minutes;
  return runtime_.sum(due ? 1 : 0) > 0;
}

// Returns whether a save fits between the signal and the end of the process.
bool Checkpoints::in_time() const {
  const double grace = engine_.config().zero_core.preempt_grace_s;
  const double predicted = engine_.predicted_save_seconds();
  if (predicted <= grace) return true;
  if (runtime_.is_root())
    std::fprintf(stderr,
                 "zero: asked to stop: a save takes %.3g s as the last one did, and "
                 "zero_core.preempt_grace_s is %.3g: nothing saved after step %lld%s%s\n",
                 predicted, grace, static_cast<long long>(engine_.step_count()),
                 last_tag_.empty() ? "" : "; the last checkpoint is ", last_tag_.c_str());
  return false;
}

void Checkpoints::save(bool wait) {
  settle();
  zero::SaveOptions options;
  options.client_state = {{data_key, data_}};
  options.keep = static_cast<int>(options_.keep);
  if (wait) options.asynchronous = false;
  pending_tag_ = "step-" + std::to_string(engine_.step_count());
  last_begun_ = std::chrono::steady_clock::now();
  pending_ = engine_.save_checkpoint(options_.checkpoint_directory, options);
}

// Waits for the pending save; false on failure.
bool Checkpoints::settle() {
  if (!pending_) return true;
  const bool committed = pending_->wait();
  pending_.reset();
  if (committed) last_tag_ = pending_tag_;
  return committed;
}

bool Checkpoints::after_step(bool last, bool stop) {
  if (options_.checkpoint_directory.empty()) return false;
  if (stop && !last) {
    settle();
    if (!in_time()) return false;
  }
  const bool due = is_due();
  if (!due && !last && !stop) {
    if (engine_.peer_copy_due())
      engine_.copy_to_peers(options_.checkpoint_directory, {.client_state = {{data_key, data_}}});
    return false;
  }
  const bool wait = last || stop || !engine_.config().checkpoint.decoupled;
  save(wait);
  if (!wait) return false;
  if (settle()) return true;
  if (last)
    throw zero::SaveError("the checkpoint after the last step could not be saved to " +
                          options_.checkpoint_directory);
  return false;
}

}  // namespace gpt
