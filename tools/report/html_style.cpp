#include "tools/report/html_style.h"

namespace zero::report {

// A color has one meaning on the whole page. Memory has hues: slots are lighter shades of their
// contents. Traffic has shades of teal; time has grays, which follow the theme, while every other
// fill has the same color in both. Text on a fill has a contrast of at least 4.5. Curves differ by
// dashes, because red is reserved for failures.
const char* const html_style = R"css(
:root {
  --page: #ffffff; --card: #f6f7f9; --ink: #1a1d21; --soft: #59616b; --rule: #dfe3e8;
  --bad: #9c1c1c; --bad-back: #fde6e4;
  --time-1: #3d4651; --time-2: #8f99a5; --time-3: #c0c7cf; --time-4: #e3e6ea;
  --on-time-1: #ffffff; --on-time-2: #14171b; --on-time-3: #14171b; --on-time-4: #14171b;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1d2126; --ink: #e8eaed; --soft: #a3abb5; --rule: #343a42;
    --bad: #ffa8a0; --bad-back: #3d1b1b;
    --time-1: #dde1e6; --time-2: #98a2ae; --time-3: #67717d; --time-4: #454d57;
    --on-time-1: #14171b; --on-time-2: #14171b; --on-time-3: #ffffff; --on-time-4: #ffffff;
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
  margin: 0 0 24px; padding: 12px 16px; border: 1px solid var(--rule); border-left: 5px solid var(--ink);
  border-radius: 8px; overflow-wrap: anywhere;
}
.verdict.fails { border-color: var(--bad); background: var(--bad-back); color: var(--bad); }
.verdict.plan { border: 2px dashed var(--soft); }
.verdict p { margin: 0; }
.verdict.equal p:first-child::before { content: "\2713\00a0"; font-weight: 650; }
.verdict.fails p:first-child::before { content: "\2717\00a0"; font-weight: 650; }
.remark { margin: 8px 0 0; padding-left: 12px; border-left: 3px solid var(--rule); font-size: 15px; }
section { margin-top: 40px; }
dl.facts {
  display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0;
  padding: 16px 18px; border-radius: 8px; background: var(--card); font-size: 15px;
}
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg.narrow { display: none; max-width: 480px; }
svg text { font-size: 14px; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .tick { fill: var(--soft); font-size: 13px; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .sum { font-weight: 650; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .mark { stroke: var(--ink); stroke-width: 2.5; }
svg .bar { fill: #7a6f63; stroke: var(--page); stroke-width: 1; }
svg .value { font-size: 13px; fill: #14171b; }
svg .floor { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 5; }
svg .curve { fill: none; stroke: var(--ink); stroke-width: 2.5; stroke-linejoin: round; }
svg .dot { fill: var(--ink); }
svg .l-2 { stroke-dasharray: 9 4; }
svg .l-3 { stroke-dasharray: 3 4; }
svg .l-4 { stroke-dasharray: 12 4 3 4; }
svg .l-5 { stroke-dasharray: 6 3 2 3 2 3; }
svg .l-6 { stroke-dasharray: 1 6; stroke-linecap: round; }
.legend {
  display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 8px; padding: 0; list-style: none;
  font-size: 14px;
}
.legend li { display: flex; align-items: center; gap: 7px; }
.swatch { width: 14px; height: 14px; border-radius: 3px; background: #7a6f63; }
.tick-swatch { width: 3px; border-radius: 0; background: var(--ink); }
svg .c-parameters { fill: #2460a7; } .s-parameters { background: #2460a7; }
svg .c-parameter_slots { fill: #9cc3f0; } .s-parameter_slots { background: #9cc3f0; }
svg .c-buffers { fill: #55616e; } .s-buffers { background: #55616e; }
svg .c-gradients { fill: #e8862e; } .s-gradients { background: #e8862e; }
svg .c-gradient_slots { fill: #f8c894; } .s-gradient_slots { background: #f8c894; }
svg .c-optimizer_state { fill: #1b7a55; } .s-optimizer_state { background: #1b7a55; }
svg .c-update_staging { fill: #9ad4b5; } .s-update_staging { background: #9ad4b5; }
svg .c-master_weights { fill: #6d4aad; } .s-master_weights { background: #6d4aad; }
svg .c-activations { fill: #d9a0c4; } .s-activations { background: #d9a0c4; }
svg .c-communication { fill: #8a5a3c; } .s-communication { background: #8a5a3c; }
svg .c-host_pinned { fill: #d3b53f; } .s-host_pinned { background: #d3b53f; }
svg .c-offload_buffers { fill: #b9cc63; } .s-offload_buffers { background: #b9cc63; }
svg .c-checkpoints { fill: #ad2f68; } .s-checkpoints { background: #ad2f68; }
svg .c-peer_copies { fill: #d77ba3; } .s-peer_copies { background: #d77ba3; }
svg .c-all_gather { fill: #0f6f7c; } .s-all_gather { background: #0f6f7c; }
svg .c-reduce_scatter { fill: #8accd4; } .s-reduce_scatter { background: #8accd4; }
svg .c-all_reduce { fill: #3f9fab; } .s-all_reduce { background: #3f9fab; }
svg .c-broadcast { fill: #155761; } .s-broadcast { background: #155761; }
svg .c-all_to_all { fill: #cdebee; } .s-all_to_all { background: #cdebee; }
svg .c-compute { fill: var(--time-1); } .s-compute { background: var(--time-1); }
svg .c-waiting { fill: var(--time-2); } .s-waiting { background: var(--time-2); }
svg .c-optimizer { fill: var(--time-3); } .s-optimizer { background: var(--time-3); }
svg .c-other { fill: var(--time-4); } .s-other { background: var(--time-4); }
svg .on-parameters, svg .on-buffers, svg .on-optimizer_state, svg .on-master_weights, svg .on-communication, svg
.on-checkpoints, svg .on-all_gather, svg .on-broadcast { fill: #ffffff; }
svg .on-compute { fill: var(--on-time-1); } svg .on-waiting { fill: var(--on-time-2); }
svg .on-optimizer { fill: var(--on-time-3); } svg .on-other { fill: var(--on-time-4); }
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
@media screen and (max-width: 760px) {
  svg.wide { display: none; }
  svg.narrow { display: block; }
}
@media screen and (max-width: 560px) {
  body { padding: 24px 16px 40px; }
  h1 { font-size: 24px; }
  dl.facts { grid-template-columns: 1fr; gap: 0; }
  dl.facts dd { margin-bottom: 8px; }
  table { font-size: 13px; }
  th, td { padding: 4px 6px; min-width: 0; }
  th:first-child { min-width: 118px; max-width: 150px; }
  tbody tr.part th:first-child { padding-left: 14px; }
  tbody th:first-child, thead th:first-child { position: sticky; left: 0; background: var(--page); }
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
