#include "tools/report/html_style.h"

namespace zero::report {

// Fills keep their colour in both themes and carry text of their own colour with a contrast of at
// least 4.5. Slots are lighter shades of what they hold.
const char* const html_style = R"css(
:root {
  --page: #ffffff; --card: #f6f7f9; --ink: #1a1d21; --soft: #59616b; --rule: #dfe3e8;
  --good: #17663f; --good-back: #e2f4ea; --bad: #9c1c1c; --bad-back: #fde6e4;
  --l1: #2460a7; --l2: #b4540a; --l3: #1b7a55; --l4: #6d4aad; --l5: #ad2f68; --l6: #5d6670;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1d2126; --ink: #e8eaed; --soft: #a3abb5; --rule: #343a42;
    --good: #7fdcaa; --good-back: #163226; --bad: #ffa8a0; --bad-back: #3d1b1b;
    --l1: #6ea8ec; --l2: #f0a05a; --l3: #5fcf9f; --l4: #b79cf0; --l5: #f08ab8; --l6: #a3abb5;
  }
}
* { box-sizing: border-box; }
html { color-scheme: light dark; -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 980px; padding: 40px 24px 64px; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
  "DejaVu Sans", sans-serif;
}
h1 { margin: 0 0 4px; font-size: 28px; line-height: 1.25; letter-spacing: -0.01em; }
h2 { margin: 0 0 2px; font-size: 19px; line-height: 1.3; }
p { margin: 0 0 12px; }
.subtitle, .lead, .notes, footer { color: var(--soft); }
.subtitle { margin-bottom: 20px; overflow-wrap: anywhere; }
.lead { font-size: 15px; }
.verdict {
  margin: 0 0 24px; padding: 12px 16px; border-radius: 8px; border-left: 5px solid var(--good);
  background: var(--good-back); color: var(--good); overflow-wrap: anywhere;
}
.verdict.differs { border-color: var(--bad); background: var(--bad-back); color: var(--bad); }
.verdict p { margin: 0; }
.verdict strong { font-weight: 650; }
section { margin-top: 40px; }
dl.facts {
  display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0;
  padding: 16px 18px; border-radius: 8px; background: var(--card); font-size: 15px;
}
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 620px; height: auto; overflow: visible; }
svg text { font-size: 14px; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .tick { fill: var(--soft); font-size: 13px; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .sum { font-weight: 650; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .mark { stroke: var(--ink); stroke-width: 2.5; }
svg .bar { fill: #8f98a3; stroke: var(--page); stroke-width: 1; }
svg .value { font-size: 13px; fill: #14171b; }
svg .floor { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 5; }
svg .curve { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
svg .l-1 { stroke: var(--l1); } svg .e-1 { fill: var(--l1); }
svg .l-2 { stroke: var(--l2); stroke-dasharray: 9 4; } svg .e-2 { fill: var(--l2); }
svg .l-3 { stroke: var(--l3); stroke-dasharray: 3 4; } svg .e-3 { fill: var(--l3); }
svg .l-4 { stroke: var(--l4); stroke-dasharray: 12 4 3 4; } svg .e-4 { fill: var(--l4); }
svg .l-5 { stroke: var(--l5); stroke-dasharray: 6 3; } svg .e-5 { fill: var(--l5); }
svg .l-6 { stroke: var(--l6); } svg .e-6 { fill: var(--l6); }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 8px; padding: 0; list-style: none;
  font-size: 14px;
}
.legend li { display: flex; align-items: center; gap: 7px; }
.swatch { width: 14px; height: 14px; border-radius: 3px; background: #8f98a3; }
.tick-swatch { width: 3px; border-radius: 0; background: var(--ink); }
svg .c-parameters, svg .c-compute, svg .c-all_gather { fill: #2460a7; }
svg .c-parameter_slots { fill: #9cc3f0; }
svg .c-gradients, svg .c-waiting, svg .c-reduce_scatter { fill: #e8862e; }
svg .c-gradient_slots { fill: #f8c894; }
svg .c-optimizer_state, svg .c-optimizer, svg .c-all_reduce { fill: #1b7a55; }
svg .c-master_weights { fill: #6d4aad; }
svg .c-communication, svg .c-broadcast { fill: #ad2f68; }
svg .c-activations, svg .c-other, svg .c-all_to_all { fill: #a9b1bb; }
svg .c-host_pinned { fill: #d3b53f; }
svg .c-offload_buffers { fill: #c1d37a; }
svg .c-checkpoints { fill: #62b6b7; }
svg .c-update_staging { fill: #bda9ea; }
.s-parameters, .s-compute, .s-all_gather { background: #2460a7; }
.s-parameter_slots { background: #9cc3f0; }
.s-gradients, .s-waiting, .s-reduce_scatter { background: #e8862e; }
.s-gradient_slots { background: #f8c894; }
.s-optimizer_state, .s-optimizer, .s-all_reduce { background: #1b7a55; }
.s-master_weights { background: #6d4aad; }
.s-communication, .s-broadcast { background: #ad2f68; }
.s-activations, .s-other, .s-all_to_all { background: #a9b1bb; }
.s-host_pinned { background: #d3b53f; }
.s-offload_buffers { background: #c1d37a; }
.s-checkpoints { background: #62b6b7; }
.s-update_staging { background: #bda9ea; }
svg .on-parameters, svg .on-compute, svg .on-all_gather, svg .on-optimizer_state,
svg .on-optimizer, svg .on-all_reduce, svg .on-master_weights, svg .on-communication,
svg .on-broadcast { fill: #ffffff; }
table { width: 100%; border-collapse: collapse; font-size: 15px; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; text-align: right; white-space: nowrap; }
th { white-space: normal; overflow-wrap: anywhere; min-width: 96px; vertical-align: bottom; }
th:first-child { min-width: 180px; text-align: left; font-weight: 400; }
thead th { border-bottom: 2px solid var(--rule); font-weight: 650; }
tbody tr.heading th { padding-top: 16px; font-weight: 650; }
tbody tr.part th:first-child { padding-left: 26px; color: var(--soft); }
tbody tr.whole th, tbody tr.whole td { border-top: 1px solid var(--rule); }
td.differs { color: var(--bad); font-weight: 650; }
.notes { font-size: 14px; }
.notes dt { margin-top: 8px; color: var(--ink); font-weight: 650; }
.notes dd { margin: 0; }
footer { margin-top: 40px; padding-top: 12px; border-top: 1px solid var(--rule); font-size: 13px; }
@media (max-width: 560px) {
  body { padding: 24px 16px 40px; }
  dl.facts { grid-template-columns: 1fr; gap: 0; }
  dl.facts dd { margin-bottom: 8px; }
}
@media print {
  @page { margin: 14mm; }
  html { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  body, .verdict, dl.facts, svg *, .swatch { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  h1 { font-size: 18pt; }
  h2 { font-size: 12.5pt; break-after: avoid; }
  .subtitle, .verdict { margin-bottom: 10px; }
  .verdict { padding: 6px 12px; }
  .lead { font-size: 9.5pt; margin-bottom: 6px; break-after: avoid; }
  dl.facts { padding: 8px 14px; gap: 1px 16px; font-size: 9pt; }
  section { margin-top: 20px; break-inside: avoid; }
  section.text, section:has(table) { break-inside: auto; }
  .legend { font-size: 9pt; break-after: avoid; }
  .scroll { overflow: visible; }
  svg { min-width: 0; }
  table { font-size: 9pt; }
  th, td { padding: 1px 6px; min-width: 72px; }
  th:first-child { min-width: 150px; }
  tbody tr.heading th { padding-top: 8px; }
  tr, .notes dd { break-inside: avoid; }
  tr.heading { break-after: avoid; }
  .notes { font-size: 8.5pt; line-height: 1.4; }
  .notes dt { margin-top: 4px; break-after: avoid; }
  footer { margin-top: 10px; padding-top: 6px; font-size: 8.5pt; }
}
)css";

}  // namespace zero::report
