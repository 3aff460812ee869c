#include "tools/report/bar_chart.h"

#include <algorithm>
#include <utility>

#include "tools/report/markup.h"
#include "tools/report/svg.h"

namespace zero::report {
namespace {

constexpr double bar_height = 34, bar_distance = 50, top = 22, axis_height = 30, gap = 10;
constexpr std::size_t most_name_columns = 22;

double sum_of(const Bar& bar) {
  double sum = 0;
  for (const Segment& segment : bar.segments) sum += segment.value;
  return sum;
}

// Where things are drawn, in user units.
struct Frame {
  double left = 0, right = 0, height = 0, scale = 0, largest = 0;

  explicit Frame(const BarChart& chart) {
    double names = 0, sums = svg::text_width(chart.sum_name);
    for (const Bar& bar : chart.bars) {
      names = std::max(names, svg::text_width(svg::shortened(bar.name, most_name_columns)));
      sums = std::max(sums, svg::text_width(chart.unit(sum_of(bar))));
      largest = std::max({largest, sum_of(bar), bar.mark});
    }
    left = names + gap;
    right = svg::width - sums - 2 * gap;
    height = top + bar_distance * static_cast<double>(chart.bars.size()) + axis_height;
    scale = largest > 0 ? (right - left) / largest : 0;
  }

  double x(double value) const { return left + value * scale; }
  double axis() const { return height - axis_height; }
};

std::string axis_of(const BarChart& chart, const Frame& frame) {
  constexpr int ticks = 6;
  // Tick labels carry no needless decimals: the distance decides.
  const double distance = tick_distance(frame.largest / chart.unit.size, ticks);
  const int decimals = distance >= 1 ? 0 : distance >= 0.1 ? 1 : 2;
  std::string text;
  for (int i = 0; i * distance * chart.unit.size <= frame.largest * 1.0001; ++i) {
    const double x = frame.x(i * distance * chart.unit.size);
    text += svg::line(x, top, x, frame.axis(), "grid");
    text += svg::text(x, frame.axis() + 18, "tick middle", fixed(i * distance, decimals));
  }
  return text + svg::text(svg::width, frame.axis() + 18, "tick end", chart.unit.name) +
         svg::text(svg::width, top - 8, "tick end", chart.sum_name);
}

std::string rectangle(double x, double y, double width, const Segment& segment,
                      const std::string& tooltip) {
  return "<rect x=\"" + svg::length(x) + "\" y=\"" + svg::length(y) + "\" width=\"" +
         svg::length(width) + "\" height=\"" + svg::length(bar_height) + "\" class=\"bar c-" +
         escape_html(segment.category) + "\"><title>" + escape_html(tooltip) + "</title></rect>\n";
}

std::string bar_of(const BarChart& chart, const Bar& bar, const Frame& frame, double y) {
  const double baseline = y + bar_height / 2 + 5;
  std::string text = svg::text(0, baseline, "name", svg::shortened(bar.name, most_name_columns));
  double before = 0;
  for (const Segment& segment : bar.segments) {
    if (!(segment.value > 0)) continue;
    const double x = frame.x(before), width = segment.value * frame.scale;
    before += segment.value;
    const std::string value = chart.unit(segment.value);
    text += rectangle(x, y, width, segment,
                      bar.name + ", " + segment.label + ": " + value + " " + chart.unit.name);
    if (svg::text_width(value) + gap <= width)
      text += svg::text(x + width / 2, baseline, ("value middle on-" + segment.category).c_str(),
                        value);
  }
  if (bar.mark > 0)
    text += "<g class=\"mark\"><title>" +
            escape_html(bar.name + ", " + bar.mark_label + ": " + chart.unit(bar.mark) + " " +
                        chart.unit.name) +
            "</title>" +
            svg::line(frame.x(bar.mark), y - 5, frame.x(bar.mark), y + bar_height + 5, "mark") +
            "</g>\n";
  return text + svg::text(svg::width, baseline, "sum end", chart.unit(before));
}

}  // namespace

std::string svg_of(const BarChart& chart) {
  const Frame frame(chart);
  std::string text = svg::open(frame.height, chart.description) + axis_of(chart, frame);
  double y = top + (bar_distance - bar_height) / 2;
  for (const Bar& bar : chart.bars) {
    text += bar_of(chart, bar, frame, y);
    y += bar_distance;
  }
  return text + "</svg>\n";
}

std::string legend_of(const BarChart& chart, const std::string& mark) {
  // In the order of the segments, whichever bar they are in.
  std::vector<Segment> entries;
  for (const Bar& bar : chart.bars)
    for (const Segment& segment : bar.segments) {
      const auto known = std::find_if(entries.begin(), entries.end(), [&](const Segment& entry) {
        return entry.category == segment.category;
      });
      if (known == entries.end())
        entries.push_back(segment);
      else
        known->value = std::max(known->value, segment.value);
    }
  std::string text = "<ul class=\"legend\">\n";
  for (const Segment& entry : entries)
    if (entry.value > 0)
      text += "<li><i class=\"swatch s-" + escape_html(entry.category) + "\"></i>" +
              escape_html(entry.label) + "</li>\n";
  if (!mark.empty())
    text += "<li><i class=\"swatch tick-swatch\"></i>" + escape_html(mark) + "</li>\n";
  return text + "</ul>\n";
}

}  // namespace zero::report
