#include "tools/report/loss_chart.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tools/report/html_style.h"
#include "tools/report/number.h"
#include "tools/report/svg.h"

namespace zero::report {
namespace {

constexpr double top = 14, axis_height = 34, gap = 10, line_height = 20;
constexpr std::size_t most_points = 1500, most_label_columns = 28;
constexpr int curve_styles = 6;  // of the style sheet: dashes, since colors have other meanings

struct Curve {
  std::string label;
  const std::vector<Step>* steps;
};

bool same_losses(const std::vector<Step>& a, const std::vector<Step>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Step& x, const Step& y) {
    return std::bit_cast<std::uint64_t>(x.loss) == std::bit_cast<std::uint64_t>(y.loss);
  });
}

std::vector<Curve> curves_of(const Comparison& comparison) {
  std::vector<Curve> curves;
  for (const Variant& variant : comparison.variants) {
    const auto same = std::find_if(curves.begin(), curves.end(), [&](const Curve& curve) {
      return same_losses(*curve.steps, variant.steps);
    });
    if (same == curves.end())
      curves.push_back({variant.name, &variant.steps});
    else
      same->label += ", " + variant.name;
  }
  if (curves.size() == 1 && comparison.variants.size() > 1)
    curves.front().label = "all, to the last bit";
  return curves;
}

// On a wide sheet labels are next to the ends of the curves, on a narrow sheet below the axis.
struct LossFrame {
  const svg::Sheet& sheet;
  double bottom = 0, height = 0;
  double left = 0, right = 0, lowest = 0, highest = 0, distance = 1;
  std::size_t steps = 1;
  int decimals = 1;

  LossFrame(const Comparison& comparison, const std::vector<Curve>& curves, const svg::Sheet& on)
      : sheet(on), bottom(on.narrow ? 226 : 306) {
    bool any = false;
    const auto include = [&](double loss) {
      if (!std::isfinite(loss)) return;
      lowest = any ? std::min(lowest, loss) : loss;
      highest = any ? std::max(highest, loss) : loss;
      any = true;
    };
    double labels = 0;
    for (const Curve& curve : curves) {
      steps = std::max(steps, curve.steps->size());
      labels = std::max(labels, svg::text_width(svg::shortened(curve.label, most_label_columns)));
      for (const Step& step : *curve.steps) include(step.loss);
    }
    if (comparison.loss_floor) include(*comparison.loss_floor);
    distance = tick_distance(highest - lowest, 5);
    lowest = std::floor(lowest / distance) * distance;
    highest = std::max(std::ceil(highest / distance) * distance, lowest + distance);
    decimals = distance >= 1 ? 0 : std::min(6, static_cast<int>(-std::floor(std::log10(distance))));
    left = svg::text_width(fixed(highest, decimals)) + gap;
    right = sheet.width - (sheet.narrow ? gap : labels + 2 * gap);
    height = bottom + axis_height +
             (sheet.narrow ? line_height * static_cast<double>(curves.size()) : 0);
  }

  double x(double step) const {
    const double span = std::max(1., static_cast<double>(steps) - 1);
    return left + (step - 1) / span * (right - left);
  }
  double y(double loss) const {
    return top + (highest - loss) / (highest - lowest) * (bottom - top);
  }
};

std::string axes_of(const LossFrame& frame) {
  std::string text;
  const int lines = static_cast<int>(std::lround((frame.highest - frame.lowest) / frame.distance));
  for (int i = 0; i <= lines; ++i) {
    const double loss = frame.lowest + i * frame.distance;
    text += svg::line(frame.left, frame.y(loss), frame.right, frame.y(loss), "grid");
    text += svg::text(frame.left - gap, frame.y(loss) + 5, "tick end", fixed(loss, frame.decimals));
  }
  const double last = static_cast<double>(frame.steps);
  const double distance = std::max(1., tick_distance(last, frame.sheet.narrow ? 4 : 8));
  const double under = frame.bottom + 20;
  text += svg::text(frame.x(1), under, "tick middle", "1");
  for (double step = distance; step < last - distance / 2; step += distance)
    if (step > 1) text += svg::text(frame.x(step), under, "tick middle", fixed(step, 0));
  if (frame.steps > 1) text += svg::text(frame.x(last), under, "tick middle", fixed(last, 0));
  if (frame.sheet.narrow)
    return text + svg::text(frame.sheet.width, under + line_height, "tick end", "step");
  return text + svg::text(frame.right + 2 * gap, under, "tick", "step");
}

// A step with a loss that is not finite leaves a gap.
std::string path_of(const std::vector<Step>& steps, const LossFrame& frame) {
  const std::size_t stride = (steps.size() + most_points - 1) / most_points;
  std::string path;
  bool drawing = false;
  for (std::size_t i = 0; i < steps.size(); i += stride) {
    const std::size_t at = i + stride >= steps.size() ? steps.size() - 1 : i;
    if (!std::isfinite(steps[at].loss)) {
      drawing = false;
      continue;
    }
    path += (drawing ? "L" : "M") + svg::length(frame.x(static_cast<double>(at + 1))) + " " +
            svg::length(frame.y(steps[at].loss));
    drawing = true;
  }
  return path;
}

// Returns the heights of labels next to the curves' ends, moved apart if ends are close, or stacked
// on a narrow sheet.
std::vector<double> label_heights(const std::vector<Curve>& curves, const LossFrame& frame) {
  std::vector<double> heights(curves.size());
  for (std::size_t i = 0; i < curves.size(); ++i)
    heights[i] = frame.bottom + axis_height + line_height * static_cast<double>(i) + 8;
  if (frame.sheet.narrow) return heights;
  std::vector<std::pair<double, std::size_t>> wanted;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::vector<Step>& steps = *curves[i].steps;
    const bool drawn = !steps.empty() && std::isfinite(steps.back().loss);
    wanted.emplace_back(drawn ? frame.y(steps.back().loss) : top, i);
  }
  std::sort(wanted.begin(), wanted.end());
  double free = top;
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const double below = line_height * static_cast<double>(wanted.size() - 1 - k);
    const double y = std::clamp(wanted[k].first, free, std::max(free, frame.bottom - below));
    heights[wanted[k].second] = y;
    free = y + line_height;
  }
  return heights;
}

std::string curve_of(const Curve& curve, int style, double label_y, const LossFrame& frame) {
  constexpr double sample = 36;
  const std::string css_class = "curve l-" + std::to_string(style % curve_styles + 1);
  const std::string path = path_of(*curve.steps, frame);
  std::string text = "<path d=\"" + path + "\" class=\"" + css_class + "\"/>\n";
  if (!curve.steps->empty() && std::isfinite(curve.steps->back().loss))
    text += "<circle cx=\"" + svg::length(frame.x(static_cast<double>(curve.steps->size()))) +
            "\" cy=\"" + svg::length(frame.y(curve.steps->back().loss)) +
            "\" r=\"4\" class=\"dot\"/>\n";
  const std::string label = svg::shortened(curve.label, most_label_columns);
  if (!frame.sheet.narrow) return text + svg::text(frame.right + gap, label_y + 5, "label", label);
  return text + svg::line(0, label_y, sample, label_y, css_class.c_str()) +
         svg::text(sample + gap, label_y + 5, "label", label);
}

std::string drawing_of(const Comparison& comparison, const svg::Sheet& sheet) {
  const std::vector<Curve> curves = curves_of(comparison);
  const LossFrame frame(comparison, curves, sheet);
  std::string text = svg::open(sheet, frame.height, "Training loss by step") + axes_of(frame);
  if (comparison.loss_floor) {
    const double y = frame.y(*comparison.loss_floor);
    text += svg::line(frame.left, y, frame.right, y, "floor");
    text += svg::text(frame.left + gap, y - 7, "tick",
                      "least possible " + fixed(*comparison.loss_floor, 4));
  }
  const std::vector<double> heights = label_heights(curves, frame);
  for (std::size_t i = 0; i < curves.size(); ++i)
    text += curve_of(curves[i], static_cast<int>(i), heights[i], frame);
  return text + "</svg>\n";
}

}  // namespace

std::string loss_svg_of(const Comparison& comparison) {
  return drawing_of(comparison, svg::wide) + drawing_of(comparison, svg::narrow);
}

std::string loss_picture_of(const Comparison& comparison) {
  // The style sheet hides svg::wide in narrow windows, and an image in a page is a window.
  const svg::Sheet alone{"alone", svg::wide.width, false};
  std::string text = drawing_of(comparison, alone);
  text.insert(text.find('>') + 1, std::string("\n<style>") + html_style +
                                      "svg.alone { background: var(--page); font-family: "
                                      "system-ui, sans-serif; }\n</style>");
  return text.insert(std::string_view("<svg").size(), " xmlns=\"http://www.w3.org/2000/svg\"");
}

}  // namespace zero::report
