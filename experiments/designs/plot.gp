set terminal svg size 1200,760 font "sans,13" background rgb "white"
set output "plot.svg"
set datafile separator tab
set datafile missing "-"
set logscale xy
set format y "10^{%T}"
set format x "%g"
set grid
set key top right samplen 1 font ",10"
set multiplot layout 2,3
norms_of(design) = sprintf("< awk -F'\t' 'NR > 1 && $3 == \"%s\" && $1 == 64' norms.tsv", design)
set xlabel "s"
set title "spectral norm, sigma 64"
plot for [d in "iid stratified golden"] norms_of(d) using 2:4 with linespoints pointtype 7 pointsize 0.5 title d, \
    norms_of("golden") using 2:10 with lines dashtype 2 linecolor "black" title "no s masks can do better"
set title "max norm, sigma 64"
plot for [d in "iid stratified golden"] norms_of(d) using 2:7 with linespoints pointtype 7 pointsize 0.5 title d, \
    norms_of("golden") using 2:8 with lines dashtype 3 title "golden, certain bound"
set title "weighted entries, sigma 64"
plot for [d in "iid stratified golden"] norms_of(d) using 2:9 with linespoints pointtype 7 pointsize 0.5 title d
output_of(layer, sigma, m) = sprintf("< awk -F'\t' '$1 == \"%s\" && $2 == %s && $3 == \"%s\"' output.tsv", layer, sigma, m)
set xlabel "keys scored per query"
do for [sigma in "2 64 256"] {
    set title sprintf("output error, layer 15, sigma %s", sigma)
    plot for [m in "iid stratified golden window"] output_of("smollm2-layer15", sigma, m) using 5:7 \
        with linespoints pointtype 7 pointsize 0.5 title m
}
unset multiplot
