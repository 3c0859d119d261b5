// The trace as JSON lines, for programs. Version 1; members may be added, none will change its meaning:
//
//   {"type":"model","format":"conclave-routing","version":1,"model":"...","architecture":"...","n_layers":2,"n_experts":8,
//    "top_k":2,"n_tokens":5,"layers":[0,1]}                                                              first, once
//   {"type":"token","position":0,"id":17,"text":"Once","experts":[[3,1],[0,7]],"weights":[[0.7,0.3],[0.6,0.4]]}
//                                   one per token; experts and weights are [n_layers][top_k], best expert first
//   {"type":"layer","layer":0,"load":[...],"weight":[...],"imbalance":1.6,"entropy_bits":2.7,"evenness":0.9,"unused":[5]}
//                                                     one per layer, last; what the members mean is in routing_stats.h
//
// Text that is not UTF-8 has U+FFFD for each byte that does not fit, and beside it "bytes": all of its bytes in
// hexadecimal. A weight that is not finite is null. Each line is one object of ASCII characters alone.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "report/routing_stats.h"

namespace conclave {

// Calls `write` with one whole line after the other, line break included.
void write_trace_jsonl(const RoutingTrace& trace, const RoutingStats& stats,
                       const std::function<void(std::string_view)>& write);

// `text` between quotes as JSON has it, ASCII alone and without '<', so that it may also stand inside a script of a page.
std::string json_string(std::string_view text);

}  // namespace conclave
