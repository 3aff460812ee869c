// The time line of a step as inline SVG: a lane for each stream that has work.
#pragma once

#include <string>
#include <vector>

namespace zero::report {

struct Span {
  std::string category;       // the color, as for a Segment of a bar chart
  std::string kind;           // in the legend: "gather"
  std::string label;          // its tooltip: "gather h.3"
  double begin = 0, end = 0;  // seconds from the start of the step
};

struct Lane {
  std::string name;
  std::vector<Span> spans;  // in the order of begin
};

struct Timeline {
  std::string title;   // the variant's name
  double seconds = 0;  // of the step
  std::vector<Lane> lanes;
};

// Returns the lanes with a legend.
std::string drawing_of(const Timeline& timeline);

}  // namespace zero::report
