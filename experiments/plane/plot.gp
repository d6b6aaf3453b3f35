set terminal svg size 900,430 font "sans,13" background rgb "white"
set output "plot.svg"
set datafile separator tab
set datafile commentschars "#"
set logscale xy
set format y "10^{%T}"
set format x "%g"
set grid
set key bottom left samplen 1 font ",10"
set yrange [1e-9:2]
set xlabel "pairs scored per query"
set multiplot layout 1,2
do for [sigma in "2 8"] {
    set title sprintf("sigma = %s tiles", sigma)
    if (sigma eq "2") { set ylabel "rms error of the output" } else { unset ylabel; unset key }
    line(m) = sprintf("< awk -F'\t' '$1 == \"%s\" && $3 == %s && $7 > 0' data.tsv", m, sigma)
    plot for [m in "'plsh stratified' 'plsh iid' window exact"] \
        line(m) using 5:7 with linespoints pointtype 7 pointsize 0.5 title m
}
unset multiplot
