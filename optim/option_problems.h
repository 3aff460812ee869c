// Problems of the options of a config section, one per line.
#pragma once

#include <string>

#include "zero/base/error.h"

namespace zero::optim {

class OptionProblems {
 public:
  explicit OptionProblems(std::string section) : section_(std::move(section)) {}

  void require(bool holds, const std::string& problem) {
    if (!holds) text_ += (text_.empty() ? "" : "\n") + section_ + problem;
  }
  void require(bool holds, const std::string& key, const std::string& expected,
               const std::string& got) {
    require(holds, key + ": expected " + expected + ", got " + got);
  }
  template <class Number>
  void require(bool holds, const std::string& key, const std::string& expected, Number got) {
    require(holds, key, expected, std::to_string(got));
  }
  template <class Number>
  void require_not_negative(const std::string& key, Number got) {
    require(got >= 0, key, "0 or more", got);
  }
  void throw_if_any() const {
    if (!text_.empty()) throw ConfigError(text_);
  }

 private:
  std::string section_, text_;
};

}  // namespace zero::optim
