// The table of a comparison: a column per variant, the same rows on the terminal, in Markdown and
// in HTML.
#pragma once

#include <string>
#include <vector>

#include "tools/report/comparison.h"

namespace zero::report {

struct Row {
  enum class Kind { heading, part, whole };

  Kind kind = Kind::whole;
  std::string label;
  std::vector<std::string> cells;  // none in a heading
};

struct Table {
  std::vector<std::string> columns;
  std::vector<Row> rows;
};

Table table_of(const Comparison& comparison);

// "optimizer_state" in words.
std::string title_of(const std::string& name);

// For a terminal: the table, a line on the run, the verdict.
std::string text_of(const Comparison& comparison);

}  // namespace zero::report
