/* web: what the page calls. Numbers in, numbers out; arrays are in the memory of the module. A call
 * that returns bool returns false on failure, and web_error() then says why.
 *
 * The same files are compiled for the machine itself by the tests, which compare the two. */
#ifndef PLSH_WEB_WEB_H
#define PLSH_WEB_WEB_H

#include "plsh/plsh.h"

#ifdef __wasm__
#define WEB_EXPORT(name) __attribute__((export_name(#name)))
#else
#define WEB_EXPORT(name)
#endif

/* The message of the last call that failed, and where failing calls write it. */
WEB_EXPORT(web_error) const char *web_error(void);
plsh_error *web_error_target(void);

/* ---- Names: of the schemes on the line, the designs, the methods and the instruction sets -----
 */

typedef enum web_list { WEB_SCHEMES, WEB_DESIGNS, WEB_METHODS, WEB_ISAS } web_list;

/* Name number i of a list, NULL after the last. */
WEB_EXPORT(web_name) const char *web_name(web_list list, int i);
WEB_EXPORT(web_version) const char *web_version(void);

/* ---- Masks: one set of partitions at a time ----------------------------------------------------
 */

/* Chooses the set that the calls below are about; false where the set cannot be drawn. */
WEB_EXPORT(web_set_choose)
bool web_set_choose(int scheme, int design, double sigma, int samples, int seed);

/* labels[n] of one draw. Design golden-shifted has none: its blocks overlap and are counted. */
WEB_EXPORT(web_set_has_labels) bool web_set_has_labels(void);
WEB_EXPORT(web_set_labels) bool web_set_labels(int sample, int n, int32_t *labels);

/* mean[n][n] = M~ of the set; counts of up to 2^24 draws are exact. */
WEB_EXPORT(web_set_mean) bool web_set_mean(int n, float *mean);

/* matrix[n][n] = L*. */
WEB_EXPORT(web_set_decay) void web_set_decay(int n, float *matrix);

/* out: the spectral norm of L* - M~, the max norm, the largest block. */
WEB_EXPORT(web_set_norms) bool web_set_norms(int n, double out[3]);

/* out: the bounds of the two norms that hold with probability 1 - delta (NAN: none is known), and
 * whether that of the max norm is certain. */
WEB_EXPORT(web_set_bounds) bool web_set_bounds(int n, double delta, double out[3]);

/* ---- The plane: the cells of points ---------------------------------------------------------- */

/* Cells by hyperplanes under the set's sigma, samples and seed: labels[samples][n] of x[n][2]. */
WEB_EXPORT(web_cells_label) bool web_cells_label(int n, const float *x, int32_t *labels);

/* planes[count][3]: normal and offset of the lines of one draw that meet the disc of this radius.
 * Returns how many there are; at most `capacity` are written. */
WEB_EXPORT(web_cells_lines)
int web_cells_lines(int sample, double radius, double *lines, int capacity);

/* ---- Attention ------------------------------------------------------------------------------- */

/* Makes q, k and v of one head: n rows of `dim` normal numbers, a function of the seed; and the
 * output of `exact` as the reference of errors. */
WEB_EXPORT(web_attention_begin)
bool web_attention_begin(int n, int dim, double sigma, bool causal, int seed);

/* Runs one method, with the kernels of an instruction set. out: milliseconds of the forward pass,
 * the root of the mean square of the error of the output, relative to that of the output; the
 * largest error of an entry; pairs scored. */
WEB_EXPORT(web_attention_run)
bool web_attention_run(int method, int design, int samples, int window, int isa, double out[4]);

WEB_EXPORT(web_attention_end) void web_attention_end(void);

/* ---- Plots: those of `plsh report` ----------------------------------------------------------- */

WEB_EXPORT(web_plot_begin)
void web_plot_begin(const char *title, const char *x, int x_scale, const char *y, int y_scale);
WEB_EXPORT(web_plot_series) void web_plot_series(int style, int colour, const char *name);
WEB_EXPORT(web_plot_mark) void web_plot_mark(double x, double y, double low, double high);

/* The plot as HTML, until the next call; NULL where there is nothing to draw. */
WEB_EXPORT(web_plot_end) const char *web_plot_end(void);

#endif
