#include "tools/report/bar_chart.h"

#include <algorithm>
#include <utility>

#include "tools/report/markup.h"
#include "tools/report/svg.h"

namespace zero::report {
namespace {

constexpr double bar_gap = 10, bar_axis_height = 30;
constexpr std::size_t most_name_columns = 22;

double sum_of(const Bar& bar) {
  double sum = 0;
  for (const Segment& segment : bar.segments) sum += segment.value;
  return sum;
}

// Layout of the chart, in user units. On a wide sheet names are left of the bars and sums right of
// them; on a narrow sheet both are above the bar, which has the whole width.
struct BarFrame {
  const svg::Sheet& sheet;
  double bar_height = 34, distance = 50, top = 22, above_bar = 8;
  double left = 0, right = 0, height = 0, scale = 0, largest = 0;
  std::size_t name_columns = most_name_columns;

  BarFrame(const BarChart& chart, const svg::Sheet& on) : sheet(on) {
    double names = 0, sums = svg::text_width(chart.sum_name);
    for (const Bar& bar : chart.bars) {
      names = std::max(names, svg::text_width(svg::shortened(bar.name, most_name_columns)));
      sums = std::max(sums, svg::text_width(chart.unit(sum_of(bar))));
      largest = std::max({largest, sum_of(bar), bar.mark});
    }
    if (sheet.narrow)
      lay_out_narrow(chart, sums);
    else
      lay_out_wide(names, sums);
    height = top + distance * static_cast<double>(chart.bars.size()) + bar_axis_height;
    scale = largest > 0 ? (right - left) / largest : 0;
  }

  void lay_out_wide(double names, double sums) {
    left = names + bar_gap;
    right = sheet.width - sums - 2 * bar_gap;
  }
  // Half of the first and of the last tick's label is outside of the bars.
  void lay_out_narrow(const BarChart& chart, double sums) {
    bar_height = 26, distance = 58, above_bar = 26;
    left = svg::text_width("0") / 2;
    right = sheet.width - svg::text_width(fixed(largest / chart.unit.size, 1)) / 2;
    name_columns =
        static_cast<std::size_t>((sheet.width - sums - 2 * bar_gap) / svg::text_width("0"));
  }

  double x(double value) const { return left + value * scale; }
  double axis() const { return height - bar_axis_height; }
  int ticks() const { return sheet.narrow ? 4 : 6; }
};

std::string axis_of(const BarChart& chart, const BarFrame& frame) {
  const double distance = tick_distance(frame.largest / chart.unit.size, frame.ticks());
  std::string text;
  for (int i = 0; i * distance * chart.unit.size <= frame.largest * 1.0001; ++i) {
    const double x = frame.x(i * distance * chart.unit.size);
    text += svg::line(x, frame.top, x, frame.axis(), "grid");
    text += svg::text(x, frame.axis() + 18, "tick middle", tick_label(i * distance, distance));
  }
  const double right = frame.sheet.width;
  if (frame.sheet.narrow)
    return text +
           svg::text(right, frame.top - 8, "tick end", chart.sum_name + ", " + chart.unit.name);
  return text + svg::text(right, frame.axis() + 18, "tick end", chart.unit.name) +
         svg::text(right, frame.top - 8, "tick end", chart.sum_name);
}

struct Box {
  double x, y, width, height;
};

std::string rectangle(const Box& box, const Segment& segment, const std::string& tooltip) {
  return "<rect x=\"" + svg::length(box.x) + "\" y=\"" + svg::length(box.y) + "\" width=\"" +
         svg::length(box.width) + "\" height=\"" + svg::length(box.height) + "\" class=\"bar c-" +
         escape_html(segment.category) + "\"><title>" + escape_html(tooltip) + "</title></rect>\n";
}

std::string mark_of(const BarChart& chart, const Bar& bar, const BarFrame& frame, double y) {
  constexpr double beyond = 4;
  return "<g class=\"mark\"><title>" +
         escape_html(bar.name + ", " + bar.mark_label + ": " + chart.unit(bar.mark) + " " +
                     chart.unit.name) +
         "</title>" +
         svg::line(frame.x(bar.mark), y - beyond, frame.x(bar.mark), y + frame.bar_height + beyond,
                   "mark") +
         "</g>\n";
}

std::string bar_of(const BarChart& chart, const Bar& bar, const BarFrame& frame, double y) {
  const double inside = y + frame.bar_height / 2 + 5;
  const double baseline = frame.sheet.narrow ? y - 8 : inside;
  std::string text = svg::text(frame.sheet.narrow ? frame.left : 0, baseline, "name",
                               svg::shortened(bar.name, frame.name_columns));
  double before = 0;
  for (const Segment& segment : bar.segments) {
    if (!(segment.value > 0)) continue;
    const Box box{frame.x(before), y, segment.value * frame.scale, frame.bar_height};
    before += segment.value;
    const std::string value = chart.unit(segment.value);
    text += rectangle(box, segment,
                      bar.name + ", " + segment.label + ": " + value + " " + chart.unit.name);
    if (svg::text_width(value) + bar_gap <= box.width)
      text += svg::text(box.x + box.width / 2, inside,
                        ("value middle on-" + segment.category).c_str(), value);
  }
  if (bar.mark > 0) text += mark_of(chart, bar, frame, y);
  return text + svg::text(frame.sheet.width, baseline, "sum end", chart.unit(before));
}

std::string drawing_of(const BarChart& chart, const svg::Sheet& sheet) {
  const BarFrame frame(chart, sheet);
  std::string text = svg::open(sheet, frame.height, chart.description) + axis_of(chart, frame);
  double y = frame.top + frame.above_bar;
  for (const Bar& bar : chart.bars) {
    text += bar_of(chart, bar, frame, y);
    y += frame.distance;
  }
  return text + "</svg>\n";
}

}  // namespace

std::string svg_of(const BarChart& chart) {
  return drawing_of(chart, svg::wide) + drawing_of(chart, svg::narrow);
}

std::string legend_of(const BarChart& chart, const std::string& mark) {
  // Lists the segments of all bars in order.
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
