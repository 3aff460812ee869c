#include "tools/report/timeline.h"

#include <algorithm>

#include "tools/report/bar_chart.h"
#include "tools/report/markup.h"
#include "tools/report/number.h"
#include "tools/report/svg.h"

namespace zero::report {
namespace {

constexpr double lane_height = 26, lane_gap = 10, time_axis_height = 30, timeline_top = 8;
// Spans that would be narrower are drawn together with the next spans of the same category.
constexpr double least_width = 0.5;

// Layout in user units. On a narrow sheet the names are above their lanes.
struct LaneFrame {
  const svg::Sheet& sheet;
  double left = 0, right = 0, distance = lane_height + lane_gap, above = 0, scale = 0, height = 0;

  LaneFrame(const Timeline& timeline, const svg::Sheet& on) : sheet(on) {
    double names = 0;
    for (const Lane& lane : timeline.lanes) names = std::max(names, svg::text_width(lane.name));
    if (sheet.narrow)
      above = 20;
    else
      left = names + lane_gap;
    distance += above;
    right = sheet.width - svg::text_width("0000") / 2;
    scale = (right - left) / timeline.seconds;
    height =
        timeline_top + distance * static_cast<double>(timeline.lanes.size()) + time_axis_height;
  }
  double x(double seconds) const { return left + seconds * scale; }
};

std::string span_text(const Span& first, double end, int count, const Unit& unit) {
  const std::string name =
      count > 1 ? std::to_string(count) + " \u00d7 " + first.kind : first.label;
  return name + ": " + unit(first.begin) + " to " + unit(end) + " " + unit.name;
}

std::string lane_of(const Lane& lane, const LaneFrame& frame, double y, const Unit& unit) {
  std::string text;
  for (std::size_t i = 0; i < lane.spans.size();) {
    const Span& first = lane.spans[i];
    double end = first.end;
    int count = 1;
    // A span that is wide enough stands alone.
    while (i + count < lane.spans.size() && lane.spans[i + count].category == first.category &&
           (lane.spans[i + count].end - first.begin) * frame.scale < least_width)
      end = lane.spans[i + count++].end;
    i += static_cast<std::size_t>(count);
    text += "<rect x=\"" + svg::length(frame.x(first.begin)) + "\" y=\"" + svg::length(y) +
            "\" width=\"" + svg::length(std::max(least_width, (end - first.begin) * frame.scale)) +
            "\" height=\"" + svg::length(lane_height) + "\" class=\"c-" +
            escape_html(first.category) + "\"><title>" +
            escape_html(span_text(first, end, count, unit)) + "</title></rect>\n";
  }
  return text;
}

std::string sheet_of(const Timeline& timeline, const svg::Sheet& sheet) {
  const LaneFrame frame(timeline, sheet);
  const Unit unit = time_unit(timeline.seconds);
  const double axis = frame.height - time_axis_height, whole = timeline.seconds / unit.size;
  const double distance = tick_distance(whole, sheet.narrow ? 4 : 8);
  std::string text =
      svg::open(sheet, frame.height, "Work of each stream in a step of " + timeline.title);
  for (int i = 0; i * distance <= whole * 1.0001; ++i) {
    const double x = frame.x(i * distance * unit.size);
    text += svg::line(x, timeline_top, x, axis, "grid");
    text += svg::text(x, axis + 18, "tick middle", tick_label(i * distance, distance));
  }
  double y = timeline_top + frame.above;
  for (const Lane& lane : timeline.lanes) {
    text += svg::text(0, sheet.narrow ? y - 6 : y + lane_height / 2 + 5, "name", lane.name) +
            lane_of(lane, frame, y, unit);
    y += frame.distance;
  }
  return text + "</svg>\n";
}

// The kinds of work in the time line, each with its seconds.
BarChart kinds_of(const Timeline& timeline) {
  Bar bar{timeline.title, {}, 0, ""};
  for (const Lane& lane : timeline.lanes)
    for (const Span& span : lane.spans)
      bar.segments.push_back({span.category, span.kind, span.end - span.begin});
  return {"", "", time_unit(timeline.seconds), {bar}};
}

}  // namespace

std::string drawing_of(const Timeline& timeline) {
  return legend_of(kinds_of(timeline)) + sheet_of(timeline, svg::wide) +
         sheet_of(timeline, svg::narrow);
}

}  // namespace zero::report
