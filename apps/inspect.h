// conclave inspect FILE [--json] [--tensors]: what a model file holds, by the same check that stands before every run.
//
// --json prints one object:
//   file { path, version, parts, bytes, alignment }
//   architecture, name
//   parameters { total, active_per_token }       active: top_k of the routed experts, one row of the token embedding,
//                                                and everything else with the head
//   layers, d_model, vocabulary, context_length, norm_epsilon
//   attention { heads, kv_heads, d_head, qk_norm, qkv_bias }
//   rope { dimensions, style, base, scaling, factor, original_context_length, frequency_factors }
//   experts { count, used, d_ff, shared, d_ff_shared, score, renormalize, scale, groups, groups_used }
//   tied_embeddings
//   formats [{ format, tensors, parameters, bytes, bits_per_weight }]     most bytes first
//   bits_per_weight
//   tokenizer { kind, pre (null but for byte BPE), tokens, merges, chat_template, special { NAME: id } }
//   memory { weights_bytes, kv_bytes_per_token, contexts [{ tokens, kv_bytes, total_bytes }] }      KV cache in f16
//   tensors [{ name, format, shape, bytes, offset, part }]     with --tensors; shape outermost first; part counts
//                                                              from 0
// Bytes that are not UTF-8 are replaced by U+FFFD.
#pragma once

#include "cli.h"

namespace conclave {

void add_inspect(CLI::App& app, Command& chosen);

}  // namespace conclave
