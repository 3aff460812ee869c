// All problems of a config, collected and reported together.
#pragma once

#include <string>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/keys.h"

namespace zero::config_schemas {

class ProblemList {
 public:
  explicit ProblemList(std::string file) : files_{std::move(file)} {}

  // Adds another file that positions may refer to; returns its number for Position::file.
  int add_file(std::string file);

  void add(Position position, std::string text);
  void unknown_key(Position position, const std::string& path);
  // As above, with a guess made before.
  void unknown_key(Position position, const std::string& path, const Guess& guess);
  // "ds_config.json:3:14"
  std::string place(Position position) const;
  // Throws a ConfigError with one line per problem, in the order of the files.
  void throw_if_any() const;

 private:
  std::vector<std::string> files_;
  std::vector<Problem> problems_;
  std::size_t not_kept_ = 0;
};

}  // namespace zero::config_schemas
