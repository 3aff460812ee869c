#include "examples/gpt/checkpoints.h"

#include <cstdio>
#include <utility>

namespace gpt {
namespace {

constexpr const char* data_key = "data";

}  // namespace

Checkpoints::Checkpoints(zero::Runtime& runtime, zero::Engine& engine, const Options& options,
                         std::string data)
    : runtime_(runtime), engine_(engine), options_(options), data_(std::move(data)) {}

// The root looks for all: a failure there ends every rank.
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

void Checkpoints::after_step(bool last) {
  if (options_.checkpoint_directory.empty()) return;
  const bool due = options_.save_every > 0 && engine_.step_count() % options_.save_every == 0;
  if (!due && !last) return;
  zero::SaveOptions options;
  options.client_state = {{data_key, data_}};
  options.keep = static_cast<int>(options_.keep);
  engine_.save_checkpoint(options_.checkpoint_directory, options).wait();
}

}  // namespace gpt
