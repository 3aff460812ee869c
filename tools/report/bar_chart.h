// Stacked horizontal bars as inline SVG: a bar per variant, its segments by category, the sums in a
// column at the right.
#pragma once

#include <string>
#include <vector>

#include "tools/report/number.h"

namespace zero::report {

struct Segment {
  std::string category;  // colored by the style's class "c-" + category
  std::string label;
  double value = 0;
};

struct Bar {
  std::string name;
  std::vector<Segment> segments;
  double mark = 0;         // drawn as a tick across the bar if above zero
  std::string mark_label;  // its meaning, for the tooltip
};

struct BarChart {
  std::string description;  // for screen readers
  std::string sum_name;     // of the column at the right
  Unit unit;
  std::vector<Bar> bars;
};

std::string svg_of(const BarChart& chart);

// Returns the categories in use with colors, as HTML. mark: the name of the ticks, if any.
std::string legend_of(const BarChart& chart, const std::string& mark = "");

}  // namespace zero::report
