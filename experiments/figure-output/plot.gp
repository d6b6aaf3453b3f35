set terminal svg size 1200,850 font "sans,13" background rgb "white"
set output "plot.svg"
set datafile separator tab
set datafile commentschars "#"
set datafile missing "nan"
set logscale x
set format x "10^{%T}"
set grid
set key bottom left samplen 1 font ",10" maxrows 4
set xrange [0.8:120000]
set yrange [-3.5:1.5]
set xlabel "samples s"
set multiplot layout 2,3
ours(run, design, sigma) = sprintf("< awk -F'\t' '$1 == \"%s\" && $2 == \"%s\" && $3 == %d' summary.tsv", run, design, sigma)
published(model, sigma) = sprintf("< awk -F'\t' '$1 == \"%s\" && $2 == %d' published.tsv", model, sigma)
set ylabel "log10 of the largest error of the output"
titles = "'layer 15' 'layer 15, causal' 'layer 15, after RoPE' 'layer 0'"
runs = "layer15 layer15-causal layer15-rope layer00"
do for [r=1:4] {
    set title word(titles, r).": iid, stratified (dashed)"
    plot for [i=0:3] ours(word(runs, r), "iid", 2 * 4**i) using 4:5 with linespoints linecolor i+1 pointtype 7 pointsize 0.4 title sprintf("sigma %d", 2 * 4**i), \
         for [i=0:3] ours(word(runs, r), "stratified", 2 * 4**i) using 4:5 with lines linecolor i+1 dashtype 3 notitle, \
         0.3 - 0.5 * log10(x) linecolor "black" dashtype 2 title "slope -1/2"
}
set title "published: Mistral-7B, Llama-4-Scout (dashed)"
plot for [i=0:3] published("Mistral-7B", 2 * 4**i) using 3:4 with linespoints linecolor i+1 pointtype 7 pointsize 0.4 title sprintf("sigma %d", 2 * 4**i), \
     for [i=0:3] published("Llama-4-Scout-17B-16E", 2 * 4**i) using 3:4 with lines linecolor i+1 dashtype 3 notitle, \
     0.3 - 0.5 * log10(x) linecolor "black" dashtype 2 notitle
unset multiplot
