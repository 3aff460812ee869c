// The calls of an engine that Python makes whatever its passes are: saves, loads, facts.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "pytorch/python/ranks.h"
#include "zero/zero.h"

namespace zero::pytorch {

class EngineCalls {
 public:
  explicit EngineCalls(std::shared_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}
  virtual ~EngineCalls() = default;

  Engine& engine() { return *engine_; }

  bool saves_in_background() const { return engine_->config().checkpoint.decoupled; }
  bool peer_copy_due() const { return engine_->peer_copy_due(); }
  // A background save is finished by a later call, unless `waits` is set.
  bool save(const std::string& directory, const SaveOptions& options, bool waits) {
    save_ = engine_->save_checkpoint(directory, options);
    return (!waits && saves_in_background()) || finish_save();
  }
  void copy_to_peers(const std::string& directory, const SaveOptions& options) {
    engine_->copy_to_peers(directory, options);
  }
  bool finish_save() { return !save_ || std::exchange(save_, std::nullopt)->wait(); }
  std::optional<Resumed> resume(const std::string& directory, const std::string& tag) {
    std::optional<Resumed> resumed = engine_->resume(directory, Resume::if_any, tag);
    settle_parameters();
    return resumed;
  }

 protected:
  // Called after the engine has other values.
  virtual void settle_parameters() = 0;

  std::shared_ptr<Ranks> ranks_;
  std::unique_ptr<Engine> engine_;

 private:
  std::optional<SaveTicket> save_;  // that no call has waited for
};

void declare_engine_calls(pybind11::module_& module);

}  // namespace zero::pytorch
